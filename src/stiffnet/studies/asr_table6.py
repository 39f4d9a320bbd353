"""ASR, Tables 6 and 14: several ASR modules at one place."""

from stiffnet.studies.scales import on_datasets, scales, train
from stiffnet.studies.study import Published, Study, higher

DEPTHS = (1, 2, 3, 4)

STUDY = Study(
    name="asr-table6",
    locator="Tables 6 and 14",
    claim="Accuracy first rises and then falls with the number δ of ASR modules at one place.",
    rows={f"δ = {n}": train("asr:se" if n == 1 else f"asr:se,depth={n}") for n in DEPTHS},
    published=Published(
        "asr_table6", "top1", {f"δ = {n}": {"attention": "SE", "delta": n} for n in DEPTHS}
    ),
    judges=(higher("δ = 2", "δ = 1"), higher("δ = 2", "δ = 4")),
    scales=scales({"dataset": "CIFAR100"}, on_datasets("CIFAR100"), small_without=("δ = 3",)),
)
