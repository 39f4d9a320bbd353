"""Average the Grad-CAM of a network over images: a report, a JSON file and a page."""

from pathlib import Path
from typing import Unpack

from stiffnet.data import open_labelled
from stiffnet.devices import make_fabric
from stiffnet.errors import DataError
from stiffnet.jobs.labels import judging_of, remarks_on_images, said_number, said_of
from stiffnet.jobs.places import check_places, result_name
from stiffnet.jobs.result_files import Written, write_result
from stiffnet.jobs.subject import Choice, Spec, facts_of, subject_of
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.loaded import remarks_on
from stiffnet.observe.gradcam import gradcam as look
from stiffnet.results.gradcam import LABEL, PREDICTED, GradcamReport

FILES = ("gradcam.json", "gradcam.html")
Explained = Written[GradcamReport]
IMAGES = 500  # as many as the ASR paper took


def gradcam(
    model: Spec,
    data: Spec,
    *,
    classes: str = "",
    images: int = IMAGES,
    layer: str = "",
    target: str = PREDICTED,
    batch_size: int = 32,
    device: str = "auto",
    workers: int = 0,
    seed: int = 0,
    out: Spec | None = None,
    command: str = "",
    watcher: Watcher = SILENT,
    **choice: Unpack[Choice],
) -> Explained:
    """Average the Grad-CAM of a network, and write ``gradcam.json`` and ``gradcam.html``.

    Arguments and errors are those of `stiffnet.jobs.measure.measure`, with `images` for its
    `limit`, and of `stiffnet.gradcam`. The folder is ``gradcam/MODEL`` if `out` is not given.
    """
    folder = Path("gradcam", result_name(model)) if out is None else Path(out)
    check_places(folder, *FILES)
    chosen = make_fabric(device=device).device
    subject, pictures, said = subject_of(model), open_labelled(data), said_of(classes)
    loaded = subject.open(guess=said_number(said, pictures), seed=seed, **choice)
    for text in (*remarks_on(loaded), *remarks_on_images(pictures)):
        watcher.note(text)
    outputs = None
    if target == LABEL:
        judged = judging_of(loaded, pictures, said)
        if judged.outputs is None:
            raise DataError(
                f"The evidence for the label cannot be found: {judged.told.rstrip('.')}. Or take "
                f"the {PREDICTED} class."
            )
        if judged.remarkable:
            watcher.note(judged.told)
        outputs = judged.outputs
    network = loaded.model.to(chosen)
    batches = pictures.batches(
        loaded.preparation, batch_size=batch_size, limit=images, workers=workers
    )
    with watcher.progress(f"explaining {loaded.name}", 3 * min(images, len(pictures))) as advance:
        report = look(
            network,
            batches,
            layer=layer,
            target=target,
            outputs=outputs,
            seed=seed,
            classes=pictures.classes,
            facts=facts_of(loaded, data=pictures.name, command=command),
            on_batch=advance,
        )
    heading = f"Average Grad-CAM of {loaded.name} on {pictures.name}"
    return Explained(report, write_result(folder, FILES, report, watcher, heading=heading))
