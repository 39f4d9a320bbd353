"""Measure how stiff a network of the transformers library is on the sentences of a file."""

from stiffnet.data.sentences import read_sentences
from stiffnet.devices import make_fabric
from stiffnet.errors import DataError
from stiffnet.jobs.subject import Spec
from stiffnet.jobs.watching import SILENT, Watcher
from stiffnet.network.attention_text import attach_text
from stiffnet.network.text_model import open_text_model
from stiffnet.observe.measure import measure as look
from stiffnet.results.stiffness import StiffnessReport
from stiffnet.trajectory.batch import on_device


def measure_text(
    model: str,
    data: Spec,
    *,
    attention: str | None = None,
    limit: int | None = None,
    batch_size: int = 64,
    device: str = "auto",
    command: str = "",
    watcher: Watcher = SILENT,
    **others: object,
) -> StiffnessReport:
    """Measure a network on padded batches of sentences; padding is left out.

    The arguments are those of `stiffnet.jobs.measure.measure`: `model` is ``hf:FOLDER`` or
    ``hf:NAME``, `data` a text file with one sentence on each line. `others` are what only networks
    of images take, which must be left out.

    Raises:
        StiffnetError: One of its kinds, if anything given cannot be used.
    """
    for name, value in others.items():
        if value:
            raise DataError(
                f"`{name}` means nothing for {model}, which is measured on sentences with its own "
                "weights. Leave it out."
            )
    sentences = read_sentences(data, limit)
    opened = open_text_model(model)
    fabric = make_fabric(device=device)
    network = opened.model.to(fabric.device)
    if cut := opened.too_long(sentences):
        watcher.note(
            f"{cut} of {len(sentences)} sentences have more than the {opened.longest} tokens that "
            f"{opened.name} takes, and are cut."
        )
    if attention:
        example = on_device(opened.batch(sentences[:2]), network)
        attach_text(network, attention, start="identity", example=example)
    said = {"attention": attention, "command": command}
    facts = {"model": opened.name, "weights": model, "data": str(data), "samples": "sentences"}
    facts |= {key: value for key, value in said.items() if value}
    rank, ranks = fabric.global_rank, fabric.world_size
    first, last = (len(sentences) * number // ranks for number in (rank, rank + 1))
    batches = opened.batches(sentences[first:last], batch_size)
    with watcher.progress(f"measuring {opened.name}", len(sentences)) as advance:
        return look(network, batches, facts=facts, on_batch=advance)
