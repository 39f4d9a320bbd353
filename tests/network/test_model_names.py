"""The list of networks."""

from stiffnet.network.model_names import is_model_name, model_names

TINY = "resnet20_cifar"
TINY_TORCHVISION = "torchvision:squeezenet1_1"


def test_every_listed_name_is_known_once():
    names = [name for name, _ in model_names()]
    assert len(set(names)) == len(names) > 1000
    assert all(is_model_name(name) for name in names)


def test_the_list_is_filtered_by_a_glob_with_and_without_the_source():
    assert ("resnet20_cifar", "stiffnet") in model_names("*_cifar")
    assert {source for _, source in model_names("resnet18")} == {"timm", "torchvision"}
    assert model_names("torchvision:resnet18") == [("torchvision:resnet18", "torchvision")]
    assert model_names("zzz*") == []
