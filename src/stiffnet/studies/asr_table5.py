"""ASR, Table 5: ASR with RepVGG and ACNet, which fold branches."""

from stiffnet.studies.scales import Network, on_datasets, scales, train
from stiffnet.studies.study import Group, Published, Study, higher

REPVGG = {"RepVGG-A0": ("repvgg_a0", "RepVGGA0"), "RepVGG-B3": ("repvgg_b3", "RepVGGB3")}
ACNET = {20: "ResNet56", 56: "ResNet56", 110: "ResNet110", 164: "ResNet164"}
PRINTED = (56, 110, 164)

PLAIN = {f"ResNet-{n}": (f"resnet{n}_cifar", name) for n, name in ACNET.items() if n != 164}
BRANCHED = {f"ACNet-{n}": (f"acresnet{n}_cifar", name) for n, name in ACNET.items()}
BRANCHES = {**REPVGG, **BRANCHED}
SMALL = ("RepVGG-A0", "RepVGG-A0 and asr:se", "ResNet-20", "ACNet-20", "ACNet-20 and asr:se")

STUDY = Study(
    name="asr-table5",
    locator="Table 5",
    claim="Networks whose branches are folded, RepVGG and ACNet, become more accurate with ASR.",
    rows={
        **{label: train(model=model) for label, (model, _) in (PLAIN | BRANCHES).items()},
        **{f"{label} and asr:se": train("asr:se", model=m) for label, (m, _) in BRANCHES.items()},
    },
    published=Published(
        "asr_table5",
        "top1",
        {
            **{label: {"model": name, "srp": "none"} for label, (_, name) in PLAIN.items()},
            **{
                label + end: {"model": name, "srp": label.partition("-")[0], "asr": asr}
                for label, (_, name) in BRANCHES.items()
                for end, asr in (("", "no"), (" and asr:se", "yes"))
            },
        },
    ),
    judges=tuple(higher(f"{label} and asr:se", label) for label in BRANCHES),
    scales=scales(
        {"dataset": "CIFAR100"},
        [
            Group(each.title, each.settings, each.published, tuple(rows))
            for recipe, title, rows in (
                ("repvgg", "RepVGG", [f"{n}{e}" for n in REPVGG for e in ("", " and asr:se")]),
                ("acnet", "ACNet", [f"{a}-{n}{e}" for n in PRINTED for a, e in (
                    ("ResNet", ""), ("ACNet", ""), ("ACNet", " and asr:se"))
                    if f"{a}-{n}" != "ResNet-164"]),
            )
            for each in on_datasets("STL10", "CIFAR100", recipe=recipe, title=title)
        ],
        network=Network("RepVGG-A0 and ACNet-20", demo_times=1.5, small_times=2.0),
        rows=SMALL,
    ),
    notes=(
        "The plain ResNet-164 of the table has basic blocks; ours has bottlenecks, so that it is "
        "not run. Beside the ACNet-20 stands what was printed of the ResNet-56.",
        "Two printed numbers, of RepVGG-A0 with ASR, are damaged in our copy of the paper, and "
        "were reconstructed.",
    ),
)  # fmt: skip
