"""Grad-CAM written straight from its definition, image by image, in float64 and with autograd only.

No hooks and no library: the network is given as two functions, before and after the layer.
"""

import numpy as np
import torch


def grad_cam(features, head, image, number=None):
    """Return the map of one image (not scaled), and which output it is the evidence for."""
    maps = features(image[None]).detach().requires_grad_()
    logits = head(maps)[0]
    number = int(logits.argmax()) if number is None else number
    (slope,) = torch.autograd.grad(logits[number], maps)
    weights = slope[0].mean(dim=(1, 2))
    weighted = sum(weight * plane for weight, plane in zip(weights, maps[0].detach(), strict=True))
    return weighted.clamp(min=0).numpy(), number


def integral(cam, weight, cells=400):
    """Integrate a map times a function of the place on a fine grid, its cells being squares."""
    rows, columns = cam.shape
    places = (np.arange(cells) + 0.5) / cells
    fine = cam[np.ix_((places * rows).astype(int), (places * columns).astype(int))]
    y, x = np.meshgrid(places, places, indexing="ij")
    return float((fine * weight(x, y)).mean())
