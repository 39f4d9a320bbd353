"""Recipes that hypothesis makes: any that may exist."""

from hypothesis import strategies as st

from stiffnet.train.recipe import Recipe

SIGNS = "abz019 :/.,-_#=[]{}()!&*|%'\"\\\xa0é名\u2028\ufeff\U0001f600"
TEXT = st.text(SIGNS, min_size=1, max_size=40) | st.sampled_from(
    ["resnet50", "cifar10:/a/b", "./digits", "'''", '"""', "no", "1", "~", "\\u0027"]
)
UNIT = st.floats(0, 1, exclude_max=True)
LARGE = st.floats(0, 1e6)


@st.composite
def recipes(draw):
    epochs = draw(st.integers(1, 1_000_000))
    given = {
        "task": draw(st.just("classify") | TEXT),
        "model": draw(TEXT),
        "attention": draw(TEXT),
        "data": draw(TEXT),
        "train_images": draw(st.integers(0, 2**63 - 1)),
        "weights": draw(st.just("") | TEXT),
        "seed": draw(st.integers(0, 2**63 - 1)),
        "epochs": epochs,
        "batch_size": draw(st.integers(1, 1_000_000)),
        "image_size": draw(st.integers(0, 10_000)),
        "learning_rate": draw(st.floats(0, 1e6, exclude_min=True)),
        "backbone_rate": draw(st.floats(0, 1, exclude_min=True)),
        "weight_decay": draw(LARGE),
        "decay": draw(st.sampled_from(["all", "weights"])),
        "label_smoothing": draw(UNIT),
        "mixup": draw(LARGE),
        "cutmix": draw(LARGE),
        "clip_norm": draw(LARGE),
        "ema_decay": draw(UNIT),
        "precision": draw(st.sampled_from(["32-true", "bf16-mixed", "16-mixed"])),
        "channels_last": draw(st.booleans()),
        "flip": draw(st.booleans()),
        "batch_noise": draw(st.booleans()),
        "sync_norms": draw(st.booleans()),
        "style": draw(st.just("") | TEXT),
        "loss_weights": draw(st.just("") | TEXT),
        "content_weight": draw(LARGE),
        "style_weight": draw(LARGE),
        "tv_weight": draw(LARGE),
    }
    parts = (_optimizer(), _schedule(epochs), _crop(), _noise())
    return Recipe(**given, **{name: value for part in parts for name, value in draw(part).items()})


@st.composite
def _optimizer(draw):
    if draw(st.booleans()):
        return {"optimizer": "adamw"}
    momentum = draw(UNIT)
    return {"momentum": momentum, "nesterov": draw(st.booleans()) and momentum > 0}


@st.composite
def _schedule(draw, epochs):
    schedule = draw(st.sampled_from(["constant", "multistep", "cosine", "onecycle"]))
    if schedule == "onecycle":
        return {"schedule": schedule}
    warmup = draw(st.integers(0, min(epochs - 1, 9)))
    first = max(warmup, 1)
    if schedule != "multistep" or first >= epochs:
        return {"schedule": "cosine", **draw(_warmup(warmup))}
    milestones = draw(st.sets(st.integers(first, epochs - 1), min_size=1, max_size=8))
    gamma = draw(st.floats(0, 1, exclude_min=True, exclude_max=True))
    return {
        "schedule": schedule,
        "milestones": tuple(sorted(milestones)),
        "gamma": gamma,
        "warmup_epochs": warmup,
    }


@st.composite
def _warmup(draw, epochs):
    return {"warmup_epochs": epochs} if epochs else {"warmup_share": draw(UNIT)}


@st.composite
def _crop(draw):
    crop = draw(st.sampled_from(["none", "pad", "resized"]))
    if crop == "pad":
        return {"padding": draw(st.integers(0, 10_000))}
    if crop == "none":
        return {"crop": crop}
    share = st.floats(0, 1, exclude_min=True)
    return {"crop": crop, "crop_scale": tuple(sorted((draw(share), draw(share))))}


@st.composite
def _noise(draw):
    noise = draw(st.sampled_from(["none", "constant", "random"]))
    if noise == "none":
        return {}
    number = LARGE if noise == "random" else st.floats(-1e6, 1e6)
    return {"noise": noise, "noise_a": draw(number), "noise_b": draw(number)}
