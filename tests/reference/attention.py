"""Step-size modules straight from their papers' formulas: NumPy, float64, loops, no torch.

Each takes the module's tensors by name, a rate (N, C, H, W), and returns the gated rate.
"""

import math

import numpy as np

EPS = 1e-5
TOP16 = [  # the best sixteen (row, column) of a 7×7 cosine grid, in the FcaNet authors' order
    (0, 0), (0, 1), (6, 0), (0, 5), (0, 2), (1, 0), (1, 2), (4, 0),
    (5, 0), (1, 6), (3, 0), (0, 4), (0, 6), (0, 3), (3, 5), (2, 2),
]  # fmt: skip


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, dtype=float)))


def relu(x):
    return np.where(x > 0, x, 0.0)


def pooled(x):
    """Mean of every channel of every sample."""
    return np.array([[math.fsum(channel.ravel()) / channel.size for channel in s] for s in x])


def two_layers(p, name, y):
    """W₂ relu(W₁ y + b₁) + b₂ for every row of y; biases where there are some."""
    hidden = relu(y @ p[f"{name}.fc1.weight"].T + p.get(f"{name}.fc1.bias", 0.0))
    return hidden @ p[f"{name}.fc2.weight"].T + p.get(f"{name}.fc2.bias", 0.0)


def batch_norm(p, name, z, training):
    """Normalise each column of z, by its own statistics or by the running ones."""
    out = np.empty_like(z)
    for c in range(z.shape[1]):
        mean, var = p[f"{name}running_mean"][c], p[f"{name}running_var"][c]
        if training:
            mean, var = np.mean(z[:, c]), np.var(z[:, c])
        standard = (z[:, c] - mean) / math.sqrt(var + EPS)
        out[:, c] = standard * p[f"{name}weight"][c] + p[f"{name}bias"][c]
    return out


def scaled(x, gate, p):
    return x * (gate * p["unit"])[:, :, None, None]


def se(p, x, state, training):
    return scaled(x, sigmoid(two_layers(p, "mlp", pooled(x))), p)


def along_channels(kernel, y):
    """Correlate each row with a short odd kernel, with zeros beyond both ends."""
    half, width = len(kernel) // 2, y.shape[1]
    out = np.zeros_like(y)
    for c in range(width):
        for k, weight in enumerate(kernel):
            if 0 <= c + k - half < width:
                out[:, c] += weight * y[:, c + k - half]
    return out


def eca(p, x, state, training):
    return scaled(x, sigmoid(along_channels(p["conv.weight"].ravel(), pooled(x))), p)


def cbam(p, x, state, training):
    n, _, height, width = x.shape
    logits = two_layers(p, "mlp", pooled(x)) + two_layers(p, "mlp", x.max(axis=(2, 3)))
    gated = scaled(x, sigmoid(logits), p)
    maps = np.stack([gated.max(axis=1), gated.mean(axis=1)], axis=1)
    padded = np.pad(maps, ((0, 0), (0, 0), (3, 3), (3, 3)))
    seen = np.zeros((n, height, width))
    for h in range(height):
        for w in range(width):
            window = padded[:, :, h : h + 7, w : w + 7]
            seen[:, h, w] = (window * p["conv.weight"][0]).sum(axis=(1, 2, 3))
    normed = batch_norm(p, "norm.", seen.reshape(-1, 1), training).reshape(seen.shape)
    return gated * sigmoid(normed)[:, None]


def srm(p, x, state, training):
    flat = x.reshape(*x.shape[:2], -1)
    variance = flat.var(axis=2, ddof=1) if flat.shape[2] > 1 else np.zeros(x.shape[:2])
    deviation = np.sqrt(variance + EPS)
    z = p["weight"][:, 0] * pooled(x) + p["weight"][:, 1] * deviation
    return scaled(x, sigmoid(batch_norm(p, "norm.", z, training)), p)


def cosine(frequency, place, length):
    return (
        math.sqrt((2 if frequency else 1) / length)
        * math.cos(math.pi * frequency * (2 * place + 1) / (2 * length))
    )  # fmt: skip


def fca(p, x, state, training):
    n, channels, height, width = x.shape
    per_group = channels // len(TOP16)
    y = np.zeros((n, channels))
    for c in range(channels):
        u, v = TOP16[c // per_group]
        for h in range(height):
            for w in range(width):
                basis = cosine(u * (height // 7), h, height) * cosine(v * (width // 7), w, width)
                y[:, c] += x[:, c, h, w] * basis
    return scaled(x, sigmoid(two_layers(p, "mlp", y)), p)


def affine(p, name, y):
    return p[f"{name}.weight"] * y + p[f"{name}.bias"]


def ie(p, x, state, training):
    return scaled(x, sigmoid(affine(p, "affine", pooled(x))), p)


def iebn(p, x, state, training):
    n, channels, height, width = x.shape
    columns = x.transpose(0, 2, 3, 1).reshape(-1, channels)
    plain = {**p, "weight": np.ones(channels), "bias": np.zeros(channels)}
    standard = batch_norm(plain, "", columns, training).reshape(n, height, width, channels)
    gate = sigmoid(affine(p, "ie", pooled(x))) * p["unit"]
    out = standard * (p["weight"] * gate)[:, None, None, :] + p["bias"]
    return out.transpose(0, 3, 1, 2)


def sem(p, x, state, training):
    y = pooled(x)
    v = sigmoid(y @ p["switch.weight"].T + p["switch.bias"])
    product = (
        sigmoid(v[:, [0]] * two_layers(p, "mlp", y))
        * sigmoid(v[:, [1]] * along_channels(p["conv.weight"].ravel(), y))
        * sigmoid(v[:, [2]] * affine(p, "affine", y))
    )
    return scaled(x, product, p)


def sge(p, x, state, training):
    groups = len(p["weight"])
    out = np.empty_like(x)
    for n in range(len(x)):
        for g, members in enumerate(np.split(np.arange(x.shape[1]), groups)):
            part = x[n, members]
            mean = part.mean(axis=(1, 2))
            t = np.tensordot(mean, part, axes=1)
            deviation = t.std(ddof=1) if t.size > 1 else 0.0
            t = (t - t.mean()) / (deviation + EPS)
            gate = sigmoid(p["weight"][g] * t + p["bias"][g]) * p["unit"]
            out[n, members] = part * gate
    return out


def cells(length, count):
    """Where the cells of an adaptive grid begin and end: they may share positions."""
    return [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def spa(p, x, state, training):
    n, channels, height, width = x.shape
    y = np.zeros((n, channels, 21))
    for c in range(channels):
        column = 0
        for side in (1, 2, 4):
            for top, bottom in cells(height, side):
                for left, right in cells(width, side):
                    y[:, c, column] = x[:, c, top:bottom, left:right].mean(axis=(1, 2))
                    column += 1
    return scaled(x, sigmoid(two_layers(p, "mlp", y.reshape(n, -1))), p)


def dia_stage(p, rates):
    """Gated rates of all the steps of a stage, from one cell."""
    channels = rates[0].shape[1]
    h = c = np.zeros(rates[0].shape[:2])
    out = []
    for x in rates:
        total = two_layers(p, "cell.from_rate", pooled(x)) + two_layers(p, "cell.from_memory", h)
        i, f, g, o = (total[:, k * channels : (k + 1) * channels] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * sigmoid(c)
        out.append(scaled(x, h, p))
    return out


def dia(p, x, state, training):
    return dia_stage(p, [x])[0]


def stepnet_vectors(x, state, reads):
    now, after = pooled(state), pooled(state + x)
    return {"x_t": [now], "x_t+1": [after], "difference": [after - now], "both": [now, after]}[
        reads
    ]


def stepnet(p, x, state, training, *, reads="both", adaptor="paper"):
    vectors = stepnet_vectors(x, state, reads)
    channels = x.shape[1]
    if adaptor == "narrow":
        logits = two_layers(p, "adaptor.mlp", np.concatenate(vectors, axis=1))
    elif adaptor == "separate":
        weighed = [p["adaptor.weight"][:, k] * v for k, v in enumerate(vectors)]
        interleaved = np.stack(weighed, axis=2).reshape(len(x), -1)
        normed = batch_norm(p, "adaptor.norm.", interleaved, training)
        summed = normed.reshape(len(x), channels, -1).sum(axis=2)
        logits = affine(p, "adaptor.affine", summed)
    else:
        weights = p["adaptor.weight"] * np.ones((channels, len(vectors)))
        mixed = sum(weights[:, k] * v for k, v in enumerate(vectors))
        logits = batch_norm(p, "adaptor.norm.", mixed, training)
        if adaptor != "bare":
            logits = affine(p, "adaptor.affine", logits)
    return scaled(x, sigmoid(logits), p)


GATED = {
    "se": se, "eca": eca, "cbam": cbam, "srm": srm, "fca": fca, "ie": ie, "iebn": iebn,
    "sem": sem, "sge": sge, "spa": spa, "dia": dia, "stepnet": stepnet,
}  # fmt: skip
