"""Gates stay in transformers' folders and in Lightning's checkpoints, or there is an error."""

import json

import pytest
import torch
import transformers
from lightning.pytorch import LightningModule, Trainer
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import stiffnet
from network.transformers_cases import ENCODER
from stiffnet.errors import CheckpointError, CorruptFileError, StorageError
from stiffnet.network.attach import attach, attached
from stiffnet.network.attachment import KEY, attachment
from stiffnet.network.create import create_model

WORDS = {"input_ids": torch.arange(12).reshape(2, 6)}
CASES = {
    "Bert": (transformers.BertModel, transformers.BertConfig(**ENCODER), WORDS, "se"),
    "Roberta": (transformers.RobertaModel, transformers.RobertaConfig(**ENCODER), WORDS, "asr:se"),
}


def saved(case, folder, **options):
    kind, config, example, module = CASES[case]
    torch.manual_seed(0)
    model = attach(kind(config).eval(), module, example=example)
    with torch.no_grad():
        for sits in attached(model):
            for parameter in model.get_submodule(sits.name).parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.config.stiffnet_attachment = attachment(model)
    model.save_pretrained(folder, **options)
    return model, kind, example


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [{}, {"max_shard_size": "10KB"}], ids=["whole", "sharded"])
def test_a_transformers_network_comes_back_with_its_gates(case, options, tmp_path):
    model, kind, example = saved(case, tmp_path / "net", **options)
    assert (tmp_path / "net/model.safetensors.index.json").exists() == bool(options)
    plain = kind.from_pretrained(tmp_path / "net")
    again = stiffnet.from_pretrained(kind, tmp_path / "net", example=example)
    assert attached(again) == attached(model)
    with torch.no_grad():
        expected = model(**example).last_hidden_state
        assert torch.equal(again(**example).last_hidden_state, expected)
        assert not torch.equal(plain(**example).last_hidden_state, expected)
    again.save_pretrained(tmp_path / "more")
    more = stiffnet.from_pretrained(kind, tmp_path / "more", example=example)
    assert attachment(more) == attachment(model)


def test_a_folder_without_the_attachment_is_an_error(tmp_path):
    _, kind, example = saved("Bert", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    record = config.pop(KEY)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"has no `{KEY}`, so it is not known what"):
        stiffnet.from_pretrained(kind, tmp_path, example=example)
    record["modules"][0]["options"]["reduction"] = 8
    (tmp_path / "config.json").write_text(json.dumps({**config, KEY: record}))
    with pytest.raises(CorruptFileError, match="its checksum does not match"):
        stiffnet.from_pretrained(kind, tmp_path, example=example)


def test_a_folder_without_the_weights_of_the_gates_is_an_error(tmp_path):
    model, kind, example = saved("Bert", tmp_path)
    kind(model.config).save_pretrained(tmp_path)  # the network alone, its configuration untouched
    with pytest.raises(CheckpointError, match=r"lists attached modules and lacks .* tensors: "):
        stiffnet.from_pretrained(kind, tmp_path, example=example)


@pytest.mark.parametrize("later", ["eca", "iebn"])
def test_modules_attached_after_the_attachment_was_written_are_an_error(later, tmp_path):
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic"}
    example = torch.rand(2, 3, 32, 32)
    model = transformers.ResNetModel(transformers.ResNetConfig(**sizes)).eval()
    attach(model, "ie", example=example, where="*stages.0*")
    model.config.stiffnet_attachment = attachment(model)
    attach(model, later, example=example, where="*stages.1*")
    model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"tensors of modules that its .* does not list: "):
        stiffnet.from_pretrained(type(model), tmp_path, example=example)
    model.config.stiffnet_attachment = attachment(model)
    model.save_pretrained(tmp_path)
    again = stiffnet.from_pretrained(type(model), tmp_path, example=example)
    assert attached(again) == attached(model)


def test_weights_that_are_not_safetensors_are_an_error(tmp_path):
    model, kind, example = saved("Bert", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(StorageError, match="wrote as safetensors"):
        stiffnet.from_pretrained(kind, tmp_path, example=example)


class Training(stiffnet.LightningAttachment, LightningModule):
    """As users write it: the network is built plain, whatever was attached to it later."""

    def __init__(self, attention=""):
        super().__init__()
        self.net = create_model("resnet20_cifar", num_classes=3)
        if attention:
            attach(self.net, attention, start="identity")

    def training_step(self, batch, number):
        images, labels = batch
        return F.cross_entropy(self.net(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Plain(LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net


@pytest.fixture
def trainer(tmp_path):
    def make(epochs):
        return Trainer(
            max_epochs=epochs, accelerator="cpu", default_root_dir=tmp_path, logger=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip

    return make


def loader():
    chance = torch.Generator().manual_seed(0)
    images = torch.randn(8, 3, 8, 8, generator=chance)
    return DataLoader(TensorDataset(images, torch.arange(8) % 3), batch_size=4)


IGNORED = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*number of training batches",
    "ignore:.*self.log",
    "ignore:.*LeafSpec:FutureWarning",
)


def same(one, other):
    one, other = one.state_dict(), other.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@IGNORED
def test_a_lightning_checkpoint_brings_the_gates_back(trainer, tmp_path):
    model = Training("se")
    here = trainer(1)
    here.fit(model, loader())
    here.save_checkpoint(tmp_path / "one.ckpt")
    loaded = Training.load_from_checkpoint(tmp_path / "one.ckpt", attention="")
    assert {sits.module for sits in attached(loaded)} == {"se"}
    assert same(loaded, model)
    images = torch.randn(2, 3, 8, 8)
    assert torch.equal(loaded.eval().net(images), model.eval().net(images))


@IGNORED
def test_training_goes_on_with_the_gates_as_if_it_had_not_stopped(trainer, tmp_path):
    whole = Training("se")
    state = {key: value.clone() for key, value in whole.state_dict().items()}
    trainer(2).fit(whole, loader())
    first = Training("se")
    first.load_state_dict(state)
    here = trainer(1)
    here.fit(first, loader())
    here.save_checkpoint(tmp_path / "one.ckpt")
    for attention in ("", "se"):
        again = Training(attention)
        trainer(2).fit(again, loader(), ckpt_path=tmp_path / "one.ckpt", weights_only=True)
        assert same(again, whole)


@IGNORED
def test_a_lightning_checkpoint_without_the_attachment_is_an_error(trainer, tmp_path):
    here = trainer(1)
    here.fit(Training("se"), loader())
    here.save_checkpoint(tmp_path / "one.ckpt")
    content = torch.load(tmp_path / "one.ckpt", weights_only=True)
    record = content.pop(KEY)
    torch.save(content, tmp_path / "without.ckpt")
    record["modules"][0]["module"] = "eca"
    torch.save({**content, KEY: record}, tmp_path / "altered.ckpt")
    for attention in ("", "se"):
        with pytest.raises(CheckpointError, match=f"The checkpoint has no `{KEY}`"):
            Training.load_from_checkpoint(tmp_path / "without.ckpt", attention=attention)
        with pytest.raises(CorruptFileError, match="its checksum does not match"):
            Training.load_from_checkpoint(tmp_path / "altered.ckpt", attention=attention)


@IGNORED
def test_a_plain_lightning_checkpoint_needs_nothing(trainer, tmp_path):
    model, here = Training(), trainer(1)
    here.fit(model, loader())
    here.save_checkpoint(tmp_path / "one.ckpt")
    assert KEY not in torch.load(tmp_path / "one.ckpt", weights_only=True)
    assert same(Training.load_from_checkpoint(tmp_path / "one.ckpt"), model)
