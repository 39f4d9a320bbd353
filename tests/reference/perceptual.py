"""The losses of style transfer in NumPy and float64, written straight from their definitions."""

import numpy as np

MEAN, STD = (
    np.float32((0.485, 0.456, 0.406)),
    np.float32((0.229, 0.224, 0.225)),
)  # as torch has them


def gram(features):
    """G[i, j] = Σ_places f_i f_j / (C H W), for one picture."""
    channels, height, width = features.shape
    found = np.zeros((channels, channels))
    for row in range(height):
        for column in range(width):
            found += np.outer(features[:, row, column], features[:, row, column])
    return found / (channels * height * width)


def total_variation(picture):
    """Mean squared differences to the pixel below and to the pixel on the right."""
    below, right = np.diff(picture, axis=1), np.diff(picture, axis=2)
    return (below**2).mean() + (right**2).mean()


def features(weights, picture):
    """Features after relu1_2, relu2_2, relu3_3 and relu4_3 of VGG16, for one picture."""
    state = (picture - MEAN.reshape(3, 1, 1)) / STD.reshape(3, 1, 1)
    found, place = [], 0
    for stage, convolutions in enumerate((2, 2, 3, 3)):
        if stage:
            channels, height, width = state.shape
            cut = state[:, : height // 2 * 2, : width // 2 * 2]
            state = cut.reshape(channels, height // 2, 2, width // 2, 2).max((2, 4))
            place += 1
        for _ in range(convolutions):
            kernel, bias = weights[f"{place}.weight"], weights[f"{place}.bias"]
            padded = np.pad(state, ((0, 0), (1, 1), (1, 1)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
            state = np.einsum("chwij,ocij->ohw", windows, kernel) + bias[:, None, None]
            state = np.maximum(state, 0)
            place += 2
        found.append(state)
    return found


def parts(weights, photograph, made, style):
    """Content, style and total variation of one made picture, before they are weighted."""
    wanted, found, like = (features(weights, each) for each in (photograph, made, style))
    return {
        "content": ((found[1] - wanted[1]) ** 2).mean(),
        "style": sum(((gram(a) - gram(b)) ** 2).mean() for a, b in zip(found, like, strict=True)),
        "tv": total_variation(made),
    }
