"""Show the content of a photograph in the style of a picture, as a loss network sees the two."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stiffnet.data import Data, as_photos
from stiffnet.data.boxes import BoxedImages
from stiffnet.data.decode import Middle
from stiffnet.data.images import Preparation
from stiffnet.data.picture import named_picture, open_picture
from stiffnet.errors import CheckpointError, DataError, RecipeError
from stiffnet.network.loaded import LoadedModel
from stiffnet.train.perceptual import (
    CONTENT,
    RANDOM,
    LossNetwork,
    gram,
    open_loss_network,
    total_variation,
)
from stiffnet.train.recipe import OF_RESTYLE, Recipe
from stiffnet.train.tasks.base import Judged, Network, Task

CHANNELS = 3


class Restyle(Task):
    """A picture for each photograph, of its size.

    The loss has three parts, and the log has each as it enters the loss, times its weight:
    ``content``, how far the features of the made picture are from those of the photograph;
    ``style``, how far their Gram matrices are from those of the style picture; ``tv``, the total
    variation.
    """

    best = "test_loss"
    larger_is_better = False
    sums = ("content", "style", "tv")
    uses = OF_RESTYLE

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        for field, option in (
            ("style", "--style PICTURE"),
            ("loss_weights", "--loss-weights FILE"),
        ):
            if not getattr(recipe, field):
                raise RecipeError(
                    f"`{field}` is empty, and `task` is {recipe.task!r}, which needs it. Give it "
                    f"with `{option}`."
                )
        self._eye: LossNetwork | None = None
        self._style: list[Tensor] = []  # Gram matrices of the style picture

    def data(self, spec: str) -> str:
        """Take a folder for one of photographs, with classes or without."""
        return as_photos(spec)

    def outputs(self, data: Data) -> int:
        """The channels of a picture."""
        if isinstance(data, BoxedImages):
            raise DataError(
                f"{data.name} holds boxes, from which a detector learns. Give a folder of "
                "photographs."
            )
        return CHANNELS

    def files(self) -> Mapping[str, Path]:
        """The style picture and the weights, unless they come with the package."""
        found = {}
        if named_picture(self.recipe.style) is None:
            found["style picture"] = Path(self.recipe.style)
        if self.recipe.loss_weights != RANDOM:
            found["file of loss weights"] = Path(self.recipe.loss_weights)
        return found

    def open(self, preparation: Preparation) -> None:
        """Read the loss network, and look at the style picture with it.

        The picture is shown as a test image is: as large as the crops, and its middle.

        Raises:
            DataError: If it cannot be read, or is smaller than the crops.
            CheckpointError: If the weights are not VGG16's.
        """
        picture = open_picture(self.recipe.style)
        channels, *size = preparation.input_size
        assert channels == CHANNELS
        if picture.height < size[0] or picture.width < size[1]:
            raise DataError(
                f"The style picture {self.recipe.style} has {picture.width}×{picture.height} "
                f"pixels, and the crops have {size[1]}×{size[0]}. Give a larger picture, or set "
                "`image_size` to less."
            )
        eye = open_loss_network(self.recipe.loss_weights)
        shown = preparation(Middle(preparation)(picture, 0)[None])
        self._style = [gram(features) for features in eye(shown)]
        self._eye = eye

    def judge(self, network: Network, batch: tuple[Tensor, Tensor], *, training: bool) -> Judged:
        """Compare what the network makes of photographs with them, and with the style."""
        photographs = batch[0]
        made = network(photographs)
        eye, style = self._placed(made)
        with torch.no_grad():
            wanted = eye(photographs.to(made.dtype), last=CONTENT)[CONTENT]
        found = eye(made)
        recipe = self.recipe
        parts = {
            "content": recipe.content_weight * _apart(found[CONTENT], wanted),
            "style": recipe.style_weight
            * sum(
                (_apart(gram(one), other) for one, other in zip(found, style, strict=True)),
                start=made.new_zeros(()),
            ),
            "tv": recipe.tv_weight * total_variation(made).sum(),
        }
        loss = parts["content"] + parts["style"] + parts["tv"]
        return Judged(len(made), loss, {name: part.detach() for name, part in parts.items()})

    def check(self, loaded: LoadedModel, data: Data, output: Any) -> None:
        """See that pictures come out as large as they went in."""
        size = loaded.preparation.input_size
        if not isinstance(output, Tensor) or output.shape[1:] != size or size[0] != CHANNELS:
            raise CheckpointError(
                f"{loaded.name} does not make colour pictures of the size that it is given, which "
                f"{self.recipe.task!r} needs. Train `style:in`, `style:bn` or `style:bn+asr`."
            )

    def _placed(self, like: Tensor) -> tuple[LossNetwork, list[Tensor]]:
        """Return the loss network and the style on the device, and in the numbers, of a picture."""
        assert self._eye is not None, "a task is opened before it judges"
        if (self._eye.mean.device, self._eye.mean.dtype) != (like.device, like.dtype):
            self._eye = self._eye.to(like)
            self._style = [each.to(like) for each in self._style]
        return self._eye, self._style


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """Return the mean squared distance of samples, summed over them."""
    return (one - other).square().flatten(1).mean(1).sum()
