"""ASR, Table 4: ASR in a network that has attention already."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Published, Study, higher

MODULES = {"se": "SE", "ie": "IE", "srm": "SRM", "spa": "SPA"}
BOTH = {name: f"{name} and asr:{name}" for name in MODULES}

STUDY = Study(
    name="asr-table4",
    locator="Table 4",
    claim="A network with attention becomes more accurate with ASR of the same module beside it.",
    rows={
        label: job
        for name in MODULES
        for label, job in (
            (name, train(name)),
            (BOTH[name], train(f"asr:{name}+{name}")),
        )
    },
    published=Published(
        "asr_table4",
        "top1_without_asr",
        {
            label: {"attention": text}
            for name, text in MODULES.items()
            for label in (name, BOTH[name])
        },
        columns=dict.fromkeys(BOTH.values(), "top1_with_asr"),
    ),
    judges=tuple(higher(BOTH[name], name) for name in MODULES),
    scales=scales(
        {"dataset": "CIFAR100", "model": "ResNet164"},
        [
            group
            for depth in (83, 164)
            for group in on_datasets(
                "STL10",
                "CIFAR100",
                recipe=f"resnet{depth}",
                title=f"ResNet-{depth}",
                model=f"ResNet{depth}",
            )
        ],
        small_without=[label for name in ("ie", "srm", "spa") for label in (name, BOTH[name])],
    ),
    notes=("ASR multiplies the rate first, so that it can be folded; the module comes after it.",),
)
