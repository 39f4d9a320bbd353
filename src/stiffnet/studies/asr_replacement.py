"""ASR, Section 5: attention values are not replaced by constants after training."""

from stiffnet.studies.scales import look, on_datasets, scales, train
from stiffnet.studies.study import Study, higher

SE = train("se")

STUDY = Study(
    name="asr-replacement",
    locator="Section 5, on ψ",
    claim="Attention that is replaced by constants after training loses accuracy, also after "
    "fine-tuning, and ASR is more accurate.",
    rows={
        "se": SE,
        "se, replaced": look("freeze", SE),
        "se, replaced, norms recalibrated": look("freeze", SE, recalibrate=True),
        "se, replaced, fine-tuned": look("freeze", SE, epochs=1),
        "asr:se": train("asr:se"),
    },
    judges=(
        higher("se", "se, replaced"),
        higher("se", "se, replaced, fine-tuned"),
        higher("asr:se", "se, replaced"),
    ),
    scales=scales({}, on_datasets("CIFAR100", "CIFAR10")),
    notes=(
        "A constant is the mean of a module's values over training images, for each channel.",
        "The text states losses of about 28 %, and 15 % after fine-tuning, without a table.",
    ),
)
