r"""Attention values over images: how close they are to one constant for each channel.

With s the values of a module, (images, channels), and s̄ their mean over images:

- the **score** is the share of the variance of s that lies between channels and not between the
  images within them (η² of the channel, 1 for perfect stripes). It says how striped the picture
  looks. Values that are all the same, in every channel, are perfect stripes too;
- the **cost** is what constant attention changes in what the module lets through,
  ‖(s - s̄) ⊗ f‖ / ‖s ⊗ f‖ over all images, f being the rate: 0 where nothing changes. It weighs
  channels by what they carry, and does not mind whether channels differ, which the score needs
  them to: near-equal values with a little noise have a low score and cost nothing.

Both come out of one pass, in constant memory and in float64.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stiffnet.attention import Attention
from stiffnet.attention.asr import ConstantGate
from stiffnet.errors import DataError, NonFiniteError, StepError
from stiffnet.network.attach import attached, nothing_attached
from stiffnet.network.step_sizes import choosers
from stiffnet.observe.channel_moments import Floats, Moments
from stiffnet.provenance import facts_on
from stiffnet.results.stripes import ModuleStripes, StripeReport
from stiffnet.trajectory.batch import as_arguments, limited, on_device, samples_in
from stiffnet.trajectory.norms import as_double
from stiffnet.trajectory.tokens import what_samples_are
from stiffnet.trajectory.wrappers import plain_run, unwrap

KEEP = 40


def stripes(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    limit: int | None = None,
    keep: int = KEEP,
    facts: Mapping[str, str] | None = None,
    on_batch: Callable[[int], None] = lambda samples: None,
) -> StripeReport:
    """Look at the values that attached attention modules give to images.

    A value is the number by which a module multiplies the rate of an image and channel. Where it
    multiplies positions differently, it is the number that comes closest, as in `step_sizes`, and
    what is left over is part of the cost. Modules that are constant (ASR) are left out, and so is
    the padding of a text.

    Args:
        model: A network with attached modules. It is run in evaluation mode, without gradients,
            and left as it was.
        loader: Batches: images, or (images, labels), or keyword arguments of the model as a
            dictionary (a key ``labels`` is taken out).
        limit: Stop after this many images; None takes all.
        keep: For how many images to keep single values, for the picture: of more, between half of
            this and all of it are kept, evenly spread. Statistics are over all in any case.
        facts: What the report should say about where its numbers come from.
        on_batch: Called after each batch with the number of images in it.

    Raises:
        StepError: If nothing is attached that chooses step sizes by its input.
        DataError: If there are fewer than two images.
        NonFiniteError: If a rate or a value is NaN or infinite; it names the image and the step.

    Example:
        >>> import stiffnet
        >>> model = stiffnet.create_model("resnet20_cifar", attention="se")
        >>> report = stripes(model, [torch.rand(4, 3, 32, 32)])
        >>> report.samples, len(report.to_frame()), report.values["layer1.0"].shape
        (4, 9, (4, 16))
    """
    for name, value, least in (("limit", limit, 2), ("keep", keep, 1)):
        if value is not None and value < least:
            raise DataError(f"`{name}` is {value}. Give {least} or more.")
    network = unwrap(model)
    ran: list[_Looked] = []  # in the order in which they run
    looked = {name: _Looked(name, keep, ran) for name in choosing(network)}
    modules = choosers(network)
    samples = 0
    what: dict[str, str] = {}
    with plain_run(network), ExitStack() as hooks:
        for name, look in looked.items():
            hooks.enter_context(modules[name].register_forward_hook(look.take))
        for inputs, _ in limited(loader, limit, labelled=False):
            as_arguments(on_device(inputs, network)).on(network)
            what = what or what_samples_are(network, inputs)
            size = samples_in(inputs)
            samples += size
            for look in looked.values():
                look.check(samples)
            on_batch(size)
    if samples < 2:
        raise DataError(
            f"The loader gave {samples} image{'s' if samples != 1 else ''}, and how values differ "
            "between images needs two or more. Give it more."
        )
    names = {sits.at: sits.module for sits in reversed(attached(network))}
    names |= {sits.name: sits.module for sits in attached(network)}
    return StripeReport(
        modules=tuple(look.result(names[look.step], modules[look.step]) for look in ran),
        samples=samples,
        number=ran[0].kept.number,
        facts=facts_on(network, what, facts),
    )


def choosing(model: nn.Module) -> list[str]:
    """Name the steps of attached modules whose values depend on the image; a StepError if none."""
    found = choosers(model)
    names = [name for name, module in found.items() if not isinstance(module, ConstantGate)]
    if names:
        return names
    kind = type(model).__name__
    there = ", ".join(sorted({sits.module for sits in attached(model)}))
    if found:
        raise StepError(
            f"What is attached to {kind} ({there}) gives every image the same values: its stripes "
            "are perfect. Fold it, or attach a module that looks at the image."
        )
    if there:
        raise StepError(
            f"What is attached to {kind} ({there}) takes the place of norms, and gives no value "
            "for each channel of a step. Attach a module that scales steps, such as 'se'."
        )
    raise nothing_attached(model, " that chooses step sizes")


@dataclass
class KeptImages:
    """Keeps every k-th image, with k a power of two, so that at most `most` are held.

    Which images stay depends on their positions only, never on how they were batched; and data
    that is sorted by class is seen in all of its classes.
    """

    most: int
    seen: int = 0
    stride: int = 1
    number: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    rows: dict[str, Floats] = field(default_factory=dict)

    def add(self, **batch: Floats) -> None:
        """Take in rows of the next images."""
        size = len(next(iter(batch.values())))
        number = np.arange(self.seen, self.seen + size, dtype=np.int64)
        self.seen += size
        chosen = number % self.stride == 0
        self.number = np.concatenate([self.number, number[chosen]])
        for name, rows in batch.items():
            before = self.rows.get(name, rows[:0])
            self.rows[name] = np.concatenate([before, rows[chosen]])
        while len(self.number) > self.most:
            self.stride *= 2
            stays = self.number % self.stride == 0
            self.number = self.number[stays]
            self.rows = {name: rows[stays] for name, rows in self.rows.items()}


class _Looked:
    """What was seen of one module so far."""

    def __init__(self, step: str, keep: int, ran: list["_Looked"]) -> None:
        self.step, self.kept, self._ran = step, KeptImages(keep), ran
        self.seen, self.silent = 0, 0
        self.left_over, self.made = 0.0, 0.0

    def take(self, module: Attention, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Take in a batch: what comes into the module, and what that makes of it."""
        rate, scaled = as_double(inputs[0]), as_double(output)
        axes = module.positions(rate)
        pooled = rate.mean(axes)
        if module.tokens is not None:  # padding is no part of a text
            (rate, count), (scaled, _) = (module.tokens.alone(x, axes) for x in (rate, scaled))
            pooled = rate.sum(axes) / count
        energy = rate.square().sum(axes)
        fitted = (scaled * rate).sum(axes) / energy
        wrong = ~torch.isfinite(pooled) | (energy > 0) & ~torch.isfinite(fitted)
        if bool(wrong.any()):
            image = self.seen + int(wrong.any(dim=1).nonzero()[0])
            raise NonFiniteError(
                f"The rate or its gate at step {self.step!r} is NaN or infinite for image {image}. "
                "Check the weights and this input."
            )
        if _differs(module):
            rest = scaled - rate * module.spread(fitted.nan_to_num(0.0), rate)
            self.left_over += float(rest.square().sum())
        self.made += float(scaled.square().sum())
        if not self.seen:
            self._ran.append(self)
            self.values, self.weighted, self.inputs = (Moments(fitted.shape[1]) for _ in range(3))
        values, weights, means = (each.cpu().numpy() for each in (fitted, energy, pooled))
        self.seen += len(values)
        known = np.isfinite(values)
        self.silent += int((~known).sum())
        self.values.add(values, known.astype(float))
        self.weighted.add(values, weights)
        self.inputs.add(means, np.ones_like(means))
        self.kept.add(values=values, inputs=means)

    def check(self, samples: int) -> None:
        """Refuse a module that did not run once for each image."""
        if self.seen not in (0, samples):
            raise StepError(
                f"The module at step {self.step!r} gave {self.seen} rows of values for {samples} "
                "images. Give a network that runs each step once, on the whole batch."
            )

    def result(self, name: str, module: Attention) -> ModuleStripes:
        return ModuleStripes(
            step=self.step,
            module=name,
            spatial=_differs(module),
            score=between_share(self.values),
            cost=self._cost(),
            silent=self.silent,
            value_mean=self.values.known_mean(),
            value_std=self.values.deviation(),
            input_mean=self.inputs.known_mean(),
            input_std=self.inputs.deviation(),
            values=self.kept.rows["values"],
            inputs=self.kept.rows["inputs"],
        )

    def _cost(self) -> float:
        changed = float(self.weighted.squares_around(self.values.mean).sum()) + self.left_over
        if not self.made:
            return 0.0 if self.values.weight.any() else float("nan")
        return float(np.sqrt(changed / self.made))


def between_share(values: Moments) -> float:
    """Share of the variance that lies between channels (η²); NaN where there is no value."""
    if not values.weight.any():
        return float("nan")
    means = Moments(1)
    means.add(values.mean[:, None], values.weight[:, None])
    between, within = float(means.squares[0]), float(values.squares.sum())
    return between / (between + within) if within else 1.0


def _differs(module: Attention) -> bool:
    """Whether a module multiplies positions differently: a causal one has a mean for each token."""
    return module.spatial or (module.tokens is not None and module.tokens.causal)
