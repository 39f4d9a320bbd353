"""``stiffnet spectrum``: the eigenvalues behind the stiffness of a network's steps."""

from pathlib import Path
from typing import Annotated, Literal

from stiffnet.cli import options
from stiffnet.cli.terminal import Terminal, command_line

Of = Literal["branch", "block"]
Method = Literal["auto", "reduced", "dense", "krylov", "planes"]


def spectrum(
    model: options.Model,
    data: options.Data,
    step: Annotated[
        list[str],
        options.text(
            "NAME", "A step, such as layer3.1. Can be given several times. By default all of them."
        ),
    ] = [],  # noqa: B006  # typer copies it
    method: Annotated[
        Method,
        options.choice(
            Method,
            "How to find eigenvalues. reduced and dense find all of them, krylov those at the "
            "ends, planes those of slices; auto is reduced where it fits, else krylov.",
        ),
    ] = "auto",
    of: Annotated[
        Of,
        options.choice(
            Of, "The branch of a step, or its whole block with shortcut and activation."
        ),
    ] = "branch",
    images: options.Limit = 8,
    cap: Annotated[int, options.number("Memory that matrices may take, in GiB.", least=1)] = 8,
    resume: Annotated[
        bool, options.flag("--resume", "Go on where an earlier run in the same folder stopped.")
    ] = False,
    weights: options.Weights = "",
    weights_key: options.WeightsKey = "",
    attention: options.Attention = "",
    num_classes: options.NumClasses = 0,
    classes: options.Classes = "",
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        options.text(
            "DIR",
            "Folder for spectrum.json, spectrum.html and the parts that are kept as they are "
            "found. By default spectrum/MODEL.",
        ),
    ] = None,
) -> None:
    """Find the eigenvalues behind the stiffness of each residual step.

    Prints a table, and writes a JSON file and an HTML page. It computes on the CPU in float64.

    Each spectrum is kept as it is found: after an interruption, the same command with --resume
    computes only the others.
    """
    from stiffnet.jobs.spectrum import spectrum as job

    found = job(
        model,
        data,
        steps=step,
        of=of,
        method=method,
        images=images or None,
        cap=cap,
        resume=resume,
        weights=weights or None,
        weights_key=weights_key,
        attention=attention or None,
        num_classes=num_classes or None,
        classes=classes,
        seed=seed,
        out=out,
        command=command_line(),
        watcher=Terminal(),
    )
    if found.files:
        print(f"Written: {' and '.join(map(str, found.files))}")
