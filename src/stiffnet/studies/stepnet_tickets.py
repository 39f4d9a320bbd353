"""StepNet, Section 3: attention is needed on a few steps only, the stiffest."""

from stiffnet.studies.scales import look, on_datasets, scales, train
from stiffnet.studies.study import Study, equal_within, higher

MEASURED = look("measure", train("none"))
THIRD = 1 / 3

STUDY = Study(
    name="stepnet-tickets",
    locator="Section 3.1, on the lottery ticket hypothesis",
    claim="Attention on the stiffest steps alone does what attention on all of them does, and more "
    "than attention on as many others.",
    rows={
        "none": train("none"),
        "stepnet on all steps": train("stepnet"),
        "stepnet on the stiffest third": train(
            "stepnet", [MEASURED], on={"which": "stiffest", "share": THIRD}
        ),
        "stepnet on a random third": train(
            "stepnet", [MEASURED], on={"which": "random", "share": THIRD}
        ),
    },
    judges=(
        higher("stepnet on the stiffest third", "none"),
        higher("stepnet on the stiffest third", "stepnet on a random third"),
        equal_within("stepnet on the stiffest third", "stepnet on all steps", 0.5),
    ),
    scales=scales({}, on_datasets("CIFAR100")),
    notes=(
        "Steps are ranked by their mean NSI in the network that was trained without attention from "
        "the same seed. The paper argues for this and prints no numbers; the margin is ours.",
    ),
)
