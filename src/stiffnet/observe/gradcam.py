r"""The average Grad-CAM of a network, and where on the image its evidence lies.

With A the feature maps of a layer and y the logit of a class, the map of an image is
ReLU(Σₖ αₖ Aₖ), αₖ being the mean over positions of ∂y/∂Aₖ. It is scaled so that its largest value
is 1 (pytorch-grad-cam also takes its smallest value off, which would make the centre look more
important than it is, and adds 1e-7), and it stays on the cells of the feature map. A map that is
zero everywhere (nothing speaks for the class) cannot be scaled: it is counted, and has no part in
the mean.

Two controls tell what the mean map is a property of. The same images shifted to the right by a
quarter of their width, where what leaves on one side enters on the other, and the evidence for the
same classes: a map that follows the data moves along. And Gaussian noise, pixel by pixel, with the
mean and deviation of each channel of the images, and the evidence for what the network sees in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stiffnet.errors import DataError, FeatureMapError, NonFiniteError
from stiffnet.observe.channel_moments import Floats, Moments
from stiffnet.observe.feature_layer import FeatureLayer, feature_layer
from stiffnet.observe.map_sums import MapSums
from stiffnet.observe.measure import batch_norm_notes, logits_of, refuse_labels
from stiffnet.provenance import facts_on, version_of
from stiffnet.results.gradcam import IMAGES, LABEL, NOISE, PREDICTED, SHIFTED, GradcamReport
from stiffnet.scramble import word_at
from stiffnet.trajectory.batch import limited, on_device
from stiffnet.trajectory.wrappers import borrowed, unwrap

SHIFT = 0.25  # of the width
_HALVES = (torch.float16, torch.bfloat16)  # which NumPy, and so pytorch-grad-cam, cannot rank


def gradcam(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layer: str = "",
    target: str = PREDICTED,
    outputs: Sequence[int] | None = None,
    limit: int | None = None,
    seed: int = 0,
    classes: Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    on_batch: Callable[[int], None] = lambda samples: None,
) -> GradcamReport:
    """Average the Grad-CAM of a network over images, by class, and over two controls.

    Needs pytorch-grad-cam: ``pip install 'stiffnet[gradcam]'``.

    Args:
        model: A classifier with feature maps. It is run in evaluation mode and left as it was.
        loader: Batches: images (batch, channel, height, width), or (images, labels).
        layer: Path of the module whose output the maps are of; by default the last feature map.
        target: Whose evidence: that for the ``"predicted"`` class, or for the ``"label"``. Noise
            has no label: there it is the predicted class.
        outputs: Which output of the network each label stands for, where that is not its number.
        limit: Stop after this many images; None takes all.
        seed: Random seed for the noise.
        classes: Names of the labels, for the report.
        facts: What the report should say about where its numbers come from.
        on_batch: Called after each batch with the number of images in it; noise counts too.

    Raises:
        DataError: If there is no image, or no label where labels are the target.
        FeatureMapError: If the network or the layer gives no feature maps or no logits, or
            pytorch-grad-cam is not installed.
        UnknownNameError: If there is no layer of that name.
        NonFiniteError: If an output or a map is NaN or infinite; it names the image.

    Example:
        >>> import stiffnet
        >>> model = stiffnet.create_model("resnet20_cifar", num_classes=10)
        >>> report = gradcam(model, [torch.rand(4, 3, 32, 32)])
        >>> report.samples, report.layer, report.images.mean.shape
        (4, 'layer3', (8, 8))
    """
    if limit is not None and limit < 1:
        raise DataError(f"`limit` is {limit}, which leaves no image. Give 1 or more.")
    if target not in (PREDICTED, LABEL):
        raise DataError(f"`target` is {target!r}. Give {PREDICTED!r} or {LABEL!r}.")
    network = unwrap(model)
    with differentiable(network):
        run: _Run | None = None
        try:
            for given, labels in limited(loader, limit):
                images = _checked(on_device(given, network))
                run = run or _Run(network, images, layer)
                known = labels if isinstance(labels, Tensor) else None
                wanted = _wanted(known, outputs, run.seen) if target == LABEL else None
                chosen = run.see(IMAGES, images, wanted, known)
                run.see(SHIFTED, images.roll(run.pixels, dims=3), chosen)
                run.count(images)
                on_batch(2 * len(images))
            if run is None:
                raise DataError("The loader gave no image. Give it some images.")
            for start in range(0, run.seen, run.batch):
                many = min(run.batch, run.seen - start)
                run.see(NOISE, run.noise(seed, start, many), None)
                on_batch(many)
            return run.report(target, classes, facts)
        finally:
            if run is not None:
                run.cam.activations_and_grads.release()


class _Run:
    """Runs batches through pytorch-grad-cam, and gathers what is kept of their maps."""

    def __init__(self, network: nn.Module, images: Tensor, layer: str) -> None:
        self.network = network
        self.layer = feature_layer(network, images, layer)
        self.cam = _grad_cam_of(network, self.layer)
        self.shape, self.batch = tuple(images.shape[1:]), len(images)
        self.kind = images[:0]  # what noise has to be like: its device and precision
        self.pixels = round(SHIFT * self.shape[2])
        if not self.pixels:
            raise DataError(
                f"The images are {self.shape[2]} pixels wide, too narrow to be shifted by a "
                "quarter. Give larger images."
            )
        self.shift = self.pixels / self.shape[2]
        self.seen = 0
        self._colours = Moments(self.shape[0])
        self._sums = {kind: MapSums(self.shift) for kind in (IMAGES, SHIFTED, NOISE)}

    def see(
        self, kind: str, images: Tensor, wanted: Tensor | None, labels: Tensor | None = None
    ) -> Tensor:
        """Take in the maps of a batch, and return which outputs they explain."""
        if images.shape[1:] != self.shape:
            raise DataError(
                f"Image {self.seen} is of shape {tuple(images.shape[1:])} and those before it are "
                f"of shape {self.shape}, so their maps have no mean. Give images of one size."
            )
        before = len(self._sums[kind])
        targets = None
        if wanted is not None:
            why = (
                f", and the network knows classes 0 to {self.layer.logits - 1}. Give a network "
                f"with as many classes as the data, or take the {PREDICTED!r} class."
            )
            wrong = (wanted < 0) | (wanted >= self.layer.logits)
            refuse_labels(wanted, wrong, "Image", self.seen, why)
            targets = [itemgetter(int(each)) for each in wanted]
        maps = self.cam(images.detach().clone().requires_grad_(), targets)
        logits: Tensor = self.cam.outputs.detach()
        self.cam.outputs = None  # which holds the whole graph
        self._check(torch.isfinite(logits).all(dim=1).cpu().numpy(), kind, before, "output")
        self._check(np.isfinite(maps).all(axis=(1, 2)), kind, before, "Grad-CAM")
        explained = logits.argmax(dim=1).cpu() if wanted is None else wanted
        self._sums[kind].add(maps, explained.numpy(), None if labels is None else labels.numpy())
        return explained

    def count(self, images: Tensor) -> None:
        """Take in the pixels of a batch that was seen, for noise that is like them."""
        values = images.detach().cpu().double().movedim(1, -1).flatten(0, -2).numpy()
        self._colours.add(values, np.ones_like(values))
        self.seen += len(images)

    def noise(self, seed: int, start: int, many: int) -> Tensor:
        """Return noise images number `start` on, each from a seed of its own."""
        places = np.arange(start, start + many, dtype=np.uint64)
        words = word_at(np.full(many, seed, dtype=np.uint64), places)
        chances = (torch.Generator().manual_seed(int(word) >> 1) for word in words)
        drawn = torch.stack([torch.randn(self.shape, generator=each) for each in chances]).double()
        spread = np.sqrt(self._colours.squares / self._colours.weight)
        mean, deviation = (
            torch.from_numpy(each).view(-1, 1, 1) for each in (self._colours.mean, spread)
        )
        return (mean + deviation * drawn).to(self.kind)

    def _check(self, good: Any, kind: str, before: int, what: str) -> None:
        if not good.all():
            number = before + int(np.argmin(good))
            name = {IMAGES: "image {}", SHIFTED: "image {}, shifted,", NOISE: "noise image {}"}
            raise NonFiniteError(
                f"The {what} of {type(self.network).__name__} for {name[kind].format(number)} is "
                "NaN or infinite. Check the weights and this input."
            )

    def report(
        self, target: str, classes: Sequence[str], facts: Mapping[str, str] | None
    ) -> GradcamReport:
        images = self._sums[IMAGES]
        rows, columns = self.layer.layout.size
        made = {
            "layer": f"{self.layer.name}, {rows} × {columns}",
            "class": "predicted" if target == PREDICTED else "label; predicted for noise",
            "shift": f"{self.pixels} of {self.shape[2]} pixels to the right, around the edge",
            "grad-cam": version_of("grad-cam"),
        }
        return GradcamReport(
            layer=self.layer.name,
            target=target,
            shift=self.shift,
            views=tuple(sums.maps(kind) for kind, sums in self._sums.items()),
            label=images.label(),
            classes=tuple(classes),
            class_label=np.array(sorted(images.by_label), dtype=np.int64),
            class_mean=images.class_mean(rows, columns),
            notes=batch_norm_notes(self.network),
            facts=facts_on(self.network, {}, {**(facts or {}), **made}),
        )


def _checked(images: Any) -> Tensor:
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        kind = f"a {type(images).__name__}"
        if isinstance(images, Tensor):
            kind = f"{images.dtype} of shape {tuple(images.shape)}"
        raise DataError(
            f"A batch is {kind}, and Grad-CAM is of images. Give floating-point numbers of shape "
            "(image, channel, height, width)."
        )
    return images


def _wanted(labels: Tensor | None, outputs: Sequence[int] | None, before: int) -> Tensor:
    """Return the output that each label stands for."""
    if labels is None:
        raise DataError(
            "The evidence for the label was asked for, and the images have none. Give labels, or "
            f"take the {PREDICTED!r} class."
        )
    if outputs is None:
        return labels
    wrong = (labels < 0) | (labels >= len(outputs))
    why = f", and {len(outputs)} labels have an output. Give `outputs` one for each class."
    refuse_labels(labels, wrong, "Image", before, why)
    return torch.tensor(outputs)[labels]


class _Logits(nn.Module):
    """A network as pytorch-grad-cam wants it: logits come out, and its gradients are left alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Return a row of logits for each image."""
        logits = logits_of(self.network(images))
        assert logits is not None, "the layer was found by a pass that gave some"
        return logits.float() if logits.dtype in _HALVES else logits

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Leave gradients as they are: they are the user's, and no parameter gets any here."""


def _grad_cam_of(network: nn.Module, layer: FeatureLayer) -> Any:
    """Return pytorch-grad-cam's Grad-CAM of a layer, with maps before it scales and resizes them.

    Raises:
        FeatureMapError: If it is not installed.
    """
    try:
        from pytorch_grad_cam import GradCAM
    except ImportError:
        raise FeatureMapError(
            "Grad-CAM needs pytorch-grad-cam, which is not installed. Install it with "
            "`pip install 'stiffnet[gradcam]'`."
        ) from None

    class Maps(GradCAM):
        def compute_cam_per_layer(self, images: Tensor, targets: Any, smooth: bool) -> Floats:
            seen = self.activations_and_grads
            if len(seen.activations) != 1 or len(seen.gradients) != 1:
                raise FeatureMapError(
                    f"The layer ran {len(seen.activations)} times in a pass, and a gradient came "
                    f"back {len(seen.gradients)} times. Choose a `layer` that runs once, and turn "
                    "checkpointing of activations off."
                )
            values, slopes = (
                each[0].double().numpy() for each in (seen.activations, seen.gradients)
            )
            [layer] = self.target_layers
            found: Floats = self.get_cam_image(images, layer, targets, values, slopes)
            return np.maximum(found, 0)

        def aggregate_multi_layers(self, maps: Floats) -> Floats:
            return maps

    return Maps(_Logits(network), [layer.module], layer.layout.maps)


@contextmanager
def differentiable(network: nn.Module) -> Iterator[None]:
    """Borrow a network for gradients by its input; parameters need none, and get their own back."""
    needed = [(each, each.requires_grad) for each in network.parameters()]
    with borrowed(network), torch.inference_mode(False), torch.enable_grad():
        try:
            for parameter, _ in needed:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter, before in needed:
                parameter.requires_grad_(before)
