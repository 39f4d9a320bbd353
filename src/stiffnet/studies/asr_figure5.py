"""ASR, Figure 5: style transfer under batch noise."""

from stiffnet.studies.study import Group, Job, Picture, Scale, Study, equal_within, higher

NETWORKS = {
    "in": {"model": "style_in"},
    "bn": {"model": "style_bn"},
    "bn + asr": {"model": "style_bn", "attention": "asr:se"},
}
ALIKE = 0.1  # of the logarithm of the loss: about ten percent
_SHORT = {"recipe": "style", "schedule": "cosine", "learning_rate": 3e-3, "image_size": 64}
_FILES = {"data": "photos", "style": "style", "loss_weights": "vgg16"}  # given with `--data`
_DEMO = {
    "data": "tiles", "style": "flower", "loss_weights": "random", "style_weight": 10.0, "epochs": 4,
}  # fmt: skip
_SMALL = {
    **_FILES, "style_weight": 3e4, "epochs": 12, "image_size": 128, "crop_scale": [0.25, 1.0],
}  # fmt: skip

STUDY = Study(
    name="asr-figure5",
    locator="Figure 5 and appendix G",
    claim="Batch norms disturb style transfer, and ASR removes the disturbance: pictures become "
    "as good as with instance norms.",
    rows={label: Job("restyle", settings) for label, settings in NETWORKS.items()},
    metric="loss",
    unit="loss on held-out photographs",
    judges=(
        higher("bn", "in"),
        higher("bn", "bn + asr"),
        equal_within("bn + asr", "in", ALIKE, metric="log_loss"),
    ),
    scales={
        "demo": Scale(
            (Group("tiles of two photographs, random loss network"),),
            {"restyle": {**_SHORT, **_DEMO}},
            {"restyle": 0.4},
        ),
        "small": Scale(
            (Group("photographs at 128 pixels, VGG16"),),
            {"restyle": {**_SHORT, **_SMALL}},
            {"restyle": 2.7},
        ),
        "paper": Scale(
            (Group("COCO at 256 pixels, VGG16"),),
            {"restyle": {"recipe": "style", **_FILES}},
        ),
    },
    picture=Picture(
        "gallery", "photographs", "pictures", "Held-out photographs, restyled (first seed)",
        "photograph", "style_picture",
    ),
    notes=(
        "The paper shows pictures and no numbers. That a disturbance shows in the loss on held-out "
        "photographs, and that losses within ten percent are alike, are our readings.",
        "The paper prints neither the weights of the losses nor the training; ours are Johnson's, "
        "as the recipe `style` has them, with a smaller weight of the style at the short scales.",
        "At scale demo a small network with fixed random weights judges the pictures in the place "
        "of VGG16, which does not come with the package, so its verdict is about that loss.",
        "The larger scales need `--data vgg16:FILE`, torchvision's weights of VGG16, and `--data "
        "style:PICTURE`.",
    ),
)  # fmt: skip
