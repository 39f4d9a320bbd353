"""``stiffnet fold``: a trained network in, the one to deploy out, and proof that they agree."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stiffnet.cli.options import Attention, Model, Weights, WeightsKey, flag, number, text
from stiffnet.cli.terminal import Terminal, command_line, show

if TYPE_CHECKING:
    from stiffnet.network.export import ExportReport


def fold(
    model: Model,
    weights: Weights = "",
    weights_key: WeightsKey = "",
    attention: Attention = "",
    num_classes: Annotated[
        int, number("Number of outputs of a named network; 0: its own number.", most=1_000_000)
    ] = 0,
    fuse: Annotated[bool, flag("--fuse", "Also fuse every norm with the layer before it.")] = False,
    onnx: Annotated[
        Path | None, text("FILE", "Also write ONNX, and check it with onnxruntime.")
    ] = None,
    program: Annotated[
        Path | None, text("FILE", "Also write a torch.export program (.pt2).")
    ] = None,
    html: Annotated[Path | None, text("FILE", "Also write an HTML page on the fold.")] = None,
    data: Annotated[str, text("DATA", "Images to compare on. By default those of the run.")] = "",
    limit: Annotated[
        int, number("Compare on this many of the images, evenly chosen.", least=1)
    ] = 16,
    out: Annotated[
        Path | None,
        text(
            "DIR",
            "Folder for the folded network. By default RUN/folded, FOLDER-folded or folded/NAME.",
        ),
    ] = None,
) -> None:
    """Fold constant attention and branches into the weights.

    Writes the plain network, with the same outputs: they are compared on random and on real
    images before anything is written. A network that is given by its name needs --weights.
    """
    from stiffnet.jobs.fold import fold as job

    folded = job(
        model,
        weights=weights or None,
        weights_key=weights_key,
        attention=attention or None,
        num_classes=num_classes or None,
        fuse=fuse,
        onnx=onnx,
        program=program,
        html=html,
        data=data or None,
        limit=limit,
        out=out,
        command=command_line(),
        watcher=Terminal(),
    )
    show(folded.result.report)
    print(f"Compared on {folded.random} random and {folded.real} real images.")
    print(f"The folded network: {folded.folder}")
    for export in folded.exports:
        print(_told(export))
    if html is not None:
        print(f"The page: {html}")


def _told(made: "ExportReport") -> str:
    what = "The program" if made.kind == "program" else f"The ONNX file (opset {made.opset})"
    real = "" if made.real_error is None else f", {made.real_error:.1e} on {made.images} real ones"
    return (
        f"{what}: {made.path}; outputs differ by {made.random_error:.1e} of the largest on random "
        f"images{real}."
    )
