"""Blocks whose code cannot be watched (TorchScript): read by what goes in and comes out."""

from collections import Counter
from collections.abc import Iterator

import torch

from stiffnet.errors import StepError
from stiffnet.trajectory.graph import Frame
from stiffnet.trajectory.rule import Found, verdicts


def opaque_blocks(frames: list[Frame]) -> Iterator[tuple[int, Found]]:
    """Blocks of TorchScript that are steps, with the times at which they began.

    Such a block counts as a step where it stands among siblings of its kind, keeps the shape and,
    as far as its operators show, adds one rate to its state.

    Raises:
        StepError: If the operators of such a module show steps that cannot be read so.
    """
    opaque = [f for f in frames if isinstance(f.module, torch.jit.ScriptModule) and f.parent]
    kinds = Counter((f.parent, f.module.original_name) for f in opaque)
    calls: Counter[str] = Counter()
    for frame in opaque:
        entered = [node.shape for node in frame.nodes if node.op == "argument"]
        inside = len(verdicts(frame))
        number = calls[frame.path]
        calls[frame.path] += 1
        repeated = kinds[frame.parent, frame.module.original_name] > 1
        readable = repeated and entered[:1] == frame.result_shapes[:1] != []
        if inside > 1 or (inside and not readable):
            raise StepError(
                f"{frame.path!r} is TorchScript and has {inside} step{'s' if inside > 1 else ''} "
                "that cannot be watched. Measure the plain Python module that it was made from."
            )
        if readable and (inside or not frame.returned):
            yield frame.nodes[0].time, Found(
                frame.path, "block", number, 0, entered[0], True, (frame.path,), (),
                (frame.path, "block", number, 1), entered[0],
            )  # fmt: skip
