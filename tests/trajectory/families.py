"""One member of every file of timm's models, and of torchvision's families, with its steps.

The numbers were found by `stiffnet.steps` with this timm and torchvision 0.29 and compared with
the architectures: a ResNet has a step a block, a transformer two, and so on.
"""

from typing import NamedTuple

TIMM_VERSION = "1.0.31"


class Family(NamedTuple):
    """A file of `timm.models`, a small network from it, and what must be found there."""

    module: str
    model: str
    size: int  # pixels
    steps: int
    counted: int


TIMM = [
    Family("beit", "beit_base_patch16_224", 224, 24, 23),
    Family("byoanet", "halonet_h1", 256, 19, 15),
    Family("byobnet", "resnet51q", 256, 16, 12),
    Family("cait", "cait_xxs24_224", 224, 51, 49),
    Family("coat", "coat_tiny", 224, 78, 8),
    Family("convit", "convit_tiny", 224, 24, 22),
    Family("convmixer", "convmixer_768_32", 224, 32, 31),
    Family("convnext", "convnext_zepto_rms", 224, 10, 6),
    Family("cpubone", "cpubone_nano", 224, 9, 7),
    Family("crossvit", "crossvit_tiny_240", 240, 36, 24),
    Family("csatv2", "csatv2", 512, 68, 40),
    Family("cspnet", "cs3darknet_focus_s", 256, 9, 5),
    Family("cspnext", "cspnext_s", 224, 5, 2),
    Family("davit", "davit_tiny", 224, 48, 44),
    Family("deepseek_vit", "deepseek_vit_412m", 546, 64, 63),
    Family("deit", "deit_tiny_patch16_224", 224, 24, 23),
    Family("dla", "dla46x_c", 224, 12, 8),
    Family("edgenext", "edgenext_xx_small", 256, 15, 11),
    Family("efficientformer", "efficientformer_l1", 224, 16, 12),
    Family("efficientformer_v2", "efficientformerv2_s0", 224, 19, 15),
    Family("efficientnet", "mobilenetv2_035", 224, 10, 5),
    Family("efficientvim", "efficientvim_m1", 224, 16, 13),
    Family("efficientvit_mit", "efficientvit_b0", 224, 11, 6),
    Family("efficientvit_msra", "efficientvit_m0", 224, 38, 35),
    Family("eva", "vit_tiny_patch16_dinov3_qkvb", 256, 24, 23),
    Family("fasternet", "fasternet_t0", 224, 13, 9),
    Family("fastvit", "fastvit_t8", 256, 10, 6),
    Family("focalnet", "focalnet_tiny_srf", 224, 24, 20),
    Family("gcvit", "gcvit_xxtiny", 224, 35, 25),
    Family("ghostnet", "ghostnet_050", 224, 16, 10),
    Family("hardcorenas", "hardcorenas_b", 224, 12, 7),
    Family("hgnet", "hgnetv2_b4", 224, 2, 1),
    Family("hiera", "hiera_tiny_224", 224, 24, 20),
    Family("hieradet_sam2", "sam2_hiera_tiny", 896, 24, 20),
    Family("hrnet", "hrnet_w18_small", 224, 23, 9),
    Family("iformer", "iformer_t", 224, 26, 22),
    Family("inception_next", "inception_next_atto", 224, 12, 8),
    Family("inception_resnet_v2", "ens_adv_inception_resnet_v2", 299, 40, 37),
    Family("lcnetv2", "lcnetv2_large", 224, 1, 0),
    Family("levit", "levit_128s", 224, 20, 17),
    Family("lowformer", "lowformer_b0", 224, 21, 19),
    Family("mambaout", "mambaout_femto", 224, 18, 14),
    Family("maxxvit", "maxvit_pico_rw_256", 256, 55, 51),
    Family("metaformer", "poolformerv2_s12", 224, 24, 20),
    Family("mlp_mixer", "gmlp_ti16_224", 224, 30, 29),
    Family("mobilenetv3", "mobilenetv3_small_050", 224, 7, 4),
    Family("mobilenetv5", "mobilenetv5_base", 256, 35, 31),
    Family("mobilevit", "mobilevit_xxs", 256, 21, 16),
    Family("mvitv2", "mvitv2_tiny", 224, 30, 26),
    Family("naflexvit", "naflexvit_base_patch16_parfac_gap", 384, 24, 23),
    Family("nest", "jx_nest_tiny", 224, 24, 21),
    Family("nextvit", "nextvit_small", 224, 44, 31),
    Family("nfnet", "nf_regnet_b0", 192, 16, 12),
    Family("pit", "pit_ti_224", 224, 24, 21),
    Family("pvt_v2", "pvt_v2_b0", 224, 16, 12),
    Family("qwen3_vit", "qwen3_vit_88m", 768, 24, 23),
    Family("regnet", "regnetx_002", 224, 13, 9),
    Family("repghost", "repghostnet_050", 224, 16, 10),
    Family("repvit", "repvit_m1", 224, 26, 22),
    Family("res2net", "res2next50", 224, 16, 12),
    Family("resnest", "resnest26d", 224, 8, 4),
    Family("resnet", "resnet18", 224, 8, 4),
    Family("resnetv2", "resnetv2_18", 224, 8, 4),
    Family("senet", "legacy_seresnet18", 224, 8, 4),
    Family("shvit", "shvit_s1", 224, 39, 36),
    Family("sknet", "skresnet18", 224, 8, 4),
    Family("starnet", "starnet_s050", 224, 6, 2),
    Family("swiftformer", "swiftformer_xs", 224, 28, 24),
    Family("swin_transformer", "swin_tiny_patch4_window7_224", 224, 24, 20),
    Family("swin_transformer_v2", "swinv2_tiny_window16_256", 256, 24, 20),
    Family("swin_transformer_v2_cr", "swinv2_cr_tiny_224", 224, 24, 20),
    Family("tiny_vit", "tiny_vit_5m_224", 224, 22, 18),
    Family("tnt", "tnt_s_legacy_patch16_224", 224, 48, 24),
    Family("tresnet", "tresnet_m", 224, 21, 17),
    Family("twins", "twins_svt_small", 224, 40, 36),
    Family("visformer", "visformer_tiny", 224, 23, 20),
    Family("vision_transformer", "vit_tiny_patch16_224", 224, 24, 23),
    Family("vision_transformer_hybrid", "vit_tiny_r_s16_p8_224", 224, 24, 23),
    Family("vision_transformer_relpos", "vit_srelpos_small_patch16_224", 224, 24, 23),
    Family("vision_transformer_sam", "samvit_base_patch16_224", 224, 24, 23),
    Family("vitamin", "vitamin_small_224", 224, 34, 31),
    Family("volo", "volo_d1_224", 224, 38, 35),
    Family("vovnet", "ese_vovnet39b_evos", 224, 2, 0),
    Family("xception", "legacy_xception", 299, 12, 8),
    Family("xception_aligned", "xception41p", 299, 12, 8),
    Family("xcit", "xcit_nano_12_p8_224", 224, 40, 38),
]

SLOW_TIMM = [  # they cannot be run on the meta device, or slowly
    Family("gemma4_vit", "gemma4_vit_167m", 96, 32, 31),
    Family("sequencer", "sequencer2d_s", 224, 36, 34),
]

WITHOUT_STEPS = {  # no addition of a state and its rate; attention will need named positions
    "densenet": ("densenet121", "concatenates"),
    "inception_v3": ("inception_v3", "concatenates"),
    "inception_v4": ("inception_v4", "concatenates"),
    "nasnet": ("nasnetalarge", "sums of parallel branches, then a concatenation"),
    "pnasnet": ("pnasnet5large", "sums of parallel branches, then a concatenation"),
    "rdnet": ("rdnet_tiny", "concatenates"),
    "selecsls": ("selecsls42", "concatenates"),
    "vgg": ("vgg11", "a chain"),
}

NOT_FOUND = {  # residual, but beyond the rule
    "dpn": (
        "dpn48b",
        "adds to some channels of a state and concatenates the others; up to timm 1.0.30, with two "
        "tensors in their place, its steps are found",
    ),
    "rexnet": (
        "rexnet_100",
        "adds the state to some of the new channels and concatenates the rest, so that no state "
        "keeps its shape",
    ),
}

TORCHVISION = [
    Family("resnet", "resnet18", 224, 8, 4),
    Family("resnet", "resnext50_32x4d", 224, 16, 12),
    Family("resnet", "wide_resnet50_2", 224, 16, 12),
    Family("convnext", "convnext_tiny", 224, 18, 14),
    Family("efficientnet", "efficientnet_b0", 224, 9, 4),
    Family("efficientnet", "efficientnet_v2_s", 224, 35, 29),
    Family("mobilenetv2", "mobilenet_v2", 224, 10, 5),
    Family("mobilenetv3", "mobilenet_v3_small", 224, 6, 2),
    Family("mnasnet", "mnasnet0_5", 224, 10, 5),
    Family("swin_transformer", "swin_t", 224, 24, 20),
    Family("swin_transformer", "swin_v2_t", 224, 24, 20),
    Family("vision_transformer", "vit_b_16", 224, 24, 23),
    Family("maxvit", "maxvit_t", 224, 55, 51),
]

TORCHVISION_ON_CPU = [  # their constructors read values, which the meta device has not
    Family("regnet", "regnet_x_400mf", 64, 22, 18),
    Family("regnet", "regnet_y_400mf", 64, 16, 12),
]

TORCHVISION_VIDEO = [
    Family("video.resnet", "r3d_18", 112, 8, 4),
    Family("video.mvit", "mvit_v2_s", 224, 32, 28),
    Family("video.swin_transformer", "swin3d_t", 224, 24, 20),
]

TORCHVISION_WITHOUT_STEPS = [
    "alexnet", "densenet121", "googlenet", "shufflenet_v2_x0_5", "squeezenet1_0", "vgg11",
]  # fmt: skip
