"""`measure`: the numbers, whatever the batches, and one sentence for whatever is wrong."""

import copy
import datetime
import re
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import stiffnet
from reference import stiffness as reference
from stiffnet.errors import DataError, NonFiniteError, StepError
from stiffnet.observe.measure import measure
from stiffnet.results.stiffness import StiffnessReport
from tolerances import RTOL
from trajectory.networks import Encoder, known_rates

RATES = (0.5, 1.0, 3.0, 2.0)


def classifier(*rates, classes=3):
    torch.manual_seed(0)
    return nn.Sequential(*known_rates(*rates), nn.Linear(6, classes, dtype=torch.float64))


def images(count, seed=0):
    return torch.rand(count, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def small_network():
    return stiffnet.create_model("resnet20_cifar", num_classes=4, seed=0)


def test_known_rates_come_out():
    report = measure(known_rates(*RATES), [images(5), images(3, 1)])
    frame = report.to_frame()
    np.testing.assert_allclose(frame["nsi_mean"], RATES, rtol=RTOL["float64"])
    np.testing.assert_allclose(frame["nsi_median"], RATES, rtol=RTOL["float64"])
    np.testing.assert_allclose(frame["increment_mean"], RATES, rtol=RTOL["float64"])
    assert frame["counted"].tolist() == [False, True, True, True]
    assert report.samples == 8
    m, mu = 3.0, 2.0  # largest and mean of the counted rates 1, 3, 2
    assert report.tns == pytest.approx(m * (m / mu - 1), rel=RTOL["float64"])
    assert report.stiffest_steps(1)["step"].tolist() == ["2"]
    assert report.calmest_steps(1)["step"].tolist() == ["1"]


def test_a_step_size_changes_the_increment_and_not_the_index():
    frame = measure(known_rates(*RATES, step_size=0.1), [images(4)]).to_frame()
    np.testing.assert_allclose(frame["nsi_mean"], RATES, rtol=RTOL["float64"])
    np.testing.assert_allclose(frame["increment_mean"], 0.1 * np.array(RATES), rtol=RTOL["float64"])


def test_the_total_of_increments_is_that_of_the_increments():
    plain = measure(known_rates(*RATES), [images(4)])
    assert plain.increment_total == pytest.approx(plain.tns, rel=RTOL["float64"])
    gated = measure(known_rates(*RATES, step_size=0.1), [images(4)])
    m, mu = 0.3, 0.2
    assert gated.increment_total == pytest.approx(m * (m / mu - 1), rel=RTOL["float64"])
    assert gated.increment_total_se == pytest.approx(0, abs=1e-8)  # all images are alike
    assert gated.to_frame()["gated"].all()
    assert not plain.to_frame()["gated"].any()


def test_folding_changes_tns_and_keeps_the_total_of_increments():
    model = small_network().double().eval()
    stiffnet.attach(model, stiffnet.asr("se"), start="paper")
    torch.manual_seed(1)
    for name, value in model.named_parameters():  # gates that differ from channel to channel
        if "asr" in name or "gate" in name or "attention" in name:
            value.data += torch.randn_like(value)
    x = torch.rand(4, 3, 32, 32, dtype=torch.float64)
    folded = stiffnet.fold(model, x).model
    before, after = measure(model, [x]), measure(folded, [x])
    assert before.increment_total == pytest.approx(after.increment_total, rel=RTOL["batch64"])
    assert before.increment_total_se == pytest.approx(after.increment_total_se, rel=1e-6)
    assert after.tns == pytest.approx(after.increment_total, rel=RTOL["float64"])
    assert before.tns != pytest.approx(after.tns, rel=1e-3)


class FrozenWrong(nn.BatchNorm1d):
    """A norm that refuses to leave training mode."""

    def train(self, mode=True):
        return super().train(True)


@pytest.mark.parametrize(
    ("norm", "words"),
    [
        (nn.BatchNorm1d(6, track_running_stats=False), "1 batch norm takes its statistics"),
        (FrozenWrong(6), "the first is '0'"),
        (nn.BatchNorm1d(6), ""),
        (nn.LayerNorm(6), ""),
    ],
)
def test_norms_that_use_the_batch_are_noted(norm, words):
    model = nn.Sequential(norm, *known_rates(*RATES)).double()
    report = measure(model, [images(6)])
    assert bool(report.notes) == bool(words)
    assert words in " ".join(report.notes)
    assert report.view().notes == report.notes
    assert StiffnessReport.load(report.save("x.json")).notes == report.notes


def test_the_report_agrees_with_the_reference_on_a_real_network():
    model, x = small_network().double(), torch.rand(6, 3, 32, 32, dtype=torch.float64)
    report = measure(model, x.split(4))
    counted = [i for i, s in enumerate(report.steps) if s.counted]
    stages = [report.steps[i].stage for i in counted]
    expected = reference.tns(report.nsi[:, counted], stages)
    np.testing.assert_allclose(report.sample_tns, expected, rtol=RTOL["float64"])
    assert report.tns == pytest.approx(expected.mean(), rel=RTOL["float64"])
    assert report.tns_se == pytest.approx(expected.std(ddof=1) / np.sqrt(6), rel=RTOL["merge"])
    np.testing.assert_allclose(
        report.to_frame()["nsi_std"], report.nsi.std(0, ddof=1), rtol=RTOL["merge"]
    )


@pytest.mark.parametrize("size", [1, 4, 7, 20])
def test_the_batch_size_does_not_matter(size):
    model, x, y = small_network(), torch.rand(20, 3, 32, 32), torch.arange(20) % 4
    whole = measure(model, [(x, y)])
    parts = measure(model, zip(x.split(size), y.split(size), strict=True))
    np.testing.assert_allclose(parts.nsi, whole.nsi, rtol=RTOL["batch32"])
    assert parts.tns == pytest.approx(whole.tns, rel=RTOL["batch32"])
    assert parts.accuracy == whole.accuracy
    np.testing.assert_array_equal(parts.kept.number, np.arange(20))


def test_loss_accuracy_and_labels_are_the_networks():
    model, x = classifier(*RATES), images(12)
    y = torch.arange(12) % 3
    report = measure(model, [(x[:5], y[:5]), (x[5:], y[5:])], classes=("a", "b", "c"))
    logits = model(x).detach()
    loss = nn.functional.cross_entropy(logits, y, reduction="none")
    np.testing.assert_allclose(report.kept.loss, loss, rtol=RTOL["float64"])
    assert report.accuracy == float((logits.argmax(1) == y).double().mean())
    table = report.by_label()
    assert table["name"].tolist() == ["a", "b", "c"]
    assert table["samples"].tolist() == [4, 4, 4]
    assert set(report.relate()["step"]) >= {"0", "1", "2", "3", "all", "TNS"}


def test_limit_cuts_exactly():
    assert measure(known_rates(*RATES), [images(5)] * 3, limit=7).samples == 7
    assert measure(known_rates(*RATES), [images(5)] * 3, limit=10).samples == 10


def test_of_many_samples_the_same_are_kept_whatever_the_batches():
    model, x = known_rates(*RATES), images(50)
    few = [measure(model, x.split(size), keep=10) for size in (50, 7, 1)]
    for report in few:
        assert len(report.kept) == 10
        assert report.samples == 50
        np.testing.assert_array_equal(report.kept.number, few[0].kept.number)
    assert not np.array_equal(few[0].kept.number, np.arange(10))  # spread, not the first ones


def test_nothing_kept_still_gives_the_statistics():
    report = measure(known_rates(*RATES), [images(5)], keep=0)
    assert report.tns == pytest.approx(1.5, rel=RTOL["float64"])
    np.testing.assert_allclose(report.to_frame()["nsi_median"], RATES, rtol=RTOL["quantile"])
    with pytest.raises(StepError, match="Measure with `keep`"):
        _ = report.nsi


def test_the_model_is_left_as_it_was():
    model = small_network().train()
    model.layer1.eval()
    before = copy.deepcopy(model.state_dict())
    modes = [m.training for m in model.modules()]
    random = torch.get_rng_state()
    measure(model, [torch.rand(2, 3, 32, 32, generator=torch.Generator())])
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.is_grad_enabled()


def test_a_keyword_network_is_measured_with_its_dictionaries():
    batch = {"pixel_values": torch.rand(3, 5, 4), "labels": torch.tensor([0, 1, 2])}
    report = measure(Encoder(), [batch])
    assert len(report.steps) == 6
    assert report.accuracy is not None


def spoilt(value):
    x = images(4)
    x[2, 3] = value
    return x


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (float("inf"), "infinite")])
def test_a_value_that_is_no_number_is_named(value, word):
    with pytest.raises(NonFiniteError, match=f"state at step '0' is {word} for sample 7"):
        measure(known_rates(*RATES), [images(5), spoilt(value)])


def test_a_state_of_norm_zero_is_named():
    x = images(3)
    x[1] = 0
    with pytest.raises(NonFiniteError, match=r"step '0' has norm zero for sample 1.*leave out"):
        measure(known_rates(*RATES), [x])


BAD_BATCHES = {
    "no batch": ([], StepError, "gave no batch"),
    "a wrong device": ([images(2).to("meta")], DataError, "lies on meta and the model on cpu"),
    "text": (["cat.png"], DataError, "A batch is a str"),
    "a number": ([3], DataError, "A batch is a int"),
    "no axis": ([torch.tensor(1.0)], DataError, "A batch is a Tensor"),
    "too few labels": ([(images(2), torch.tensor([1]))], DataError, r"shape \(1,\)"),
    "three parts": ([[images(2)] * 3], DataError, "list of 3 parts"),
    "a detector's images": ([[torch.rand(3, 6, 6)] * 2], DataError, r"list of 2.*`{'images': "),
    "a label too large": ([(images(2), torch.tensor([0, 3]))], DataError, "Sample 1 has label 3"),
    "a negative label": ([(images(2), torch.tensor([-1, 0]))], DataError, "Sample 0 has label -1"),
    "labels now and then": (
        [(images(2), torch.tensor([0, 1])), images(2)],
        DataError,
        "Some batches",
    ),
    "a wrong shape": ([torch.rand(2, 5).double()], StepError, r"inputs of shape \(2, 5\)"),
}


@pytest.mark.parametrize(("batches", "error", "words"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_bad_batch_gets_one_sentence(batches, error, words):
    with pytest.raises(error, match=words) as caught:
        measure(classifier(*RATES), batches)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("loader", [None, 5, images(2)], ids=["None", "a number", "a tensor"])
def test_what_is_no_series_of_batches_is_refused(loader):
    with pytest.raises(DataError, match=r"loader is of type .*no series of batches.*`\[images\]`"):
        measure(known_rates(*RATES), loader)


@pytest.mark.parametrize("options", [{"limit": 0}, {"keep": -1}])
def test_limits_that_make_no_sense_are_refused(options):
    with pytest.raises(DataError, match="or more"):
        measure(known_rates(*RATES), [images(2)], **options)


OTHER_LABELS = {
    "masks": (torch.zeros(3, 4, 4, dtype=torch.long), r"torch.int64 of shape \(3, 4, 4\)"),
    "tokens": (torch.full((3, 5), -100), r"torch.int64 of shape \(3, 5\)"),
    "numbers with fractions": (torch.tensor([0.5, 1, 2]), r"torch.float32 of shape \(3,\)"),
    "boxes": ([{"boxes": torch.rand(k, 4)} for k in range(3)], "a list"),
    "words": (["cat", "dog", "cat"], "a list"),
    "a dictionary": ({"boxes": torch.rand(3, 4)}, "a dict"),
}


@pytest.mark.parametrize(("labels", "what"), OTHER_LABELS.values(), ids=OTHER_LABELS)
def test_labels_that_are_not_one_class_a_sample_are_left_out_with_a_note(labels, what):
    report = measure(classifier(*RATES), [(images(3), labels)] * 2)
    plain = measure(classifier(*RATES), [images(3)] * 2)
    assert (report.kept.label, report.accuracy) == (None, None)
    np.testing.assert_array_equal(report.nsi, plain.nsi)
    [note] = report.notes
    assert re.match(f"The labels are {what} and not one class a sample, so nothing here", note)


def test_labels_break_down_what_a_network_without_logits_did():
    report = measure(Maps(), [(torch.rand(4, 2, 3, 3), torch.tensor([[0], [1], [1], [0]]))])
    assert report.by_label()["samples"].tolist() == [2, 2]
    assert (report.kept.loss, report.accuracy) == (None, None)
    assert [note[:45] for note in report.notes] == ["The network gives no row of logits for each s"]


class Pair(NamedTuple):
    features: torch.Tensor
    logits: torch.Tensor


class Giving(nn.Module):
    """A classifier that gives its features and logits in some container."""

    def __init__(self, give):
        super().__init__()
        self.net, self.give = classifier(*RATES), give

    def forward(self, x):
        features = self.net[:-1](x)
        return self.give(features, self.net[-1](features))


LABELLED = (images(40), torch.arange(40) % 3)


@pytest.mark.parametrize(
    "give",
    [
        Pair,
        lambda f, y: {"features": f, "logits": y},
        lambda f, y: (y, y),
        lambda f, y: [y, "more"],
    ],
    ids=["named", "dictionary", "two heads", "list"],
)
def test_logits_are_found_by_their_name_or_as_the_only_rows(give):
    report, plain = (measure(m, [LABELLED]) for m in (Giving(give), classifier(*RATES)))
    assert report.accuracy == plain.accuracy
    np.testing.assert_allclose(report.kept.loss, plain.kept.loss, rtol=RTOL["float64"])


@pytest.mark.parametrize(
    "give",
    [lambda f, y: (f, y), lambda f, y: (y, f), lambda f, y: y[:, :1]],
    ids=["features first", "features last", "one output"],
)
def test_rows_that_may_be_something_else_are_not_judged(give):
    images, labels = LABELLED
    report = measure(Giving(give), [(images, 0 * labels)])
    assert (report.accuracy, report.kept.loss, report.kept.label.max()) == (None, None, 0)
    assert [note[:45] for note in report.notes] == ["The network gives no row of logits for each s"]


def test_probabilities_have_an_accuracy_and_no_loss():
    report = measure(Giving(lambda f, y: y.softmax(1)), [LABELLED])
    assert report.accuracy == measure(classifier(*RATES), [LABELLED]).accuracy
    assert report.kept.loss is None
    assert report.notes == (
        "The network's outputs are probabilities and not logits, so there is an accuracy and no "
        "loss.",
    )


def test_logits_that_look_like_probabilities_by_chance_are_logits():
    """Of images one by one, some sum to one; the batches may be of any size."""

    def give(f, y):
        return y.softmax(1) * torch.where(f[:, :1] > 0.5, 5, 1)

    one_by_one = list(zip(*(part.split(1) for part in LABELLED), strict=True))
    single, whole = (measure(Giving(give), loader) for loader in (one_by_one, [LABELLED]))
    np.testing.assert_allclose(single.kept.loss, whole.kept.loss, rtol=RTOL["float64"])
    assert single.notes == ()


class Maps(nn.Module):
    """One step, whose result is a map."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(2, 2, 1)

    def forward(self, x):
        return x + self.layer(x)


def test_labels_may_be_a_list_or_an_array():
    for labels in ([0, 1, 2], np.array([0, 1, 2])):
        report = measure(classifier(*RATES), [(images(3), labels)])
        assert report.kept.label.tolist() == [0, 1, 2]


class Deeper(nn.Module):
    """Takes one more step where a sample is large."""

    def __init__(self):
        super().__init__()
        self.blocks = known_rates(*RATES)

    def forward(self, x):
        easy = bool(x.max() < 10)
        return self.blocks[:-1](x) if easy else self.blocks(x)


@pytest.mark.parametrize("size", [5, 3], ids=["in the first batch", "in a later batch"])
def test_a_block_that_runs_for_some_samples_only_is_refused(size):
    easy, large = images(3), 100 * images(2)
    with pytest.raises(StepError, match=r"Block '.*3' does not run equally often .* \(0 and 1 t"):
        measure(Deeper(), torch.cat([easy, large]).split(size))
    assert len(measure(Deeper(), [easy]).steps) + 1 == len(RATES)
    assert len(measure(Deeper(), [large]).steps) == len(RATES)


def test_a_network_that_writes_into_its_input_leaves_the_batches_alone():
    class Normalising(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = known_rates(*RATES)

        def forward(self, x, more=None):
            return self.blocks(x.sub_(0.5).mul_(2) if more is None else x.add_(more.mul_(2)))

    loader = [images(3), {"x": images(2), "more": images(2)}]
    given = copy.deepcopy(loader)
    measure(Normalising(), loader[:1])
    measure(Normalising(), loader[1:])
    assert torch.equal(loader[0], given[0])
    assert all(torch.equal(loader[1][key], given[1][key]) for key in ("x", "more"))


def test_a_network_that_mixes_its_samples_is_refused():
    class Doubling(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = known_rates(*RATES)

        def forward(self, x):
            return self.blocks(x.expand(2, -1) if len(x) == 1 else x)

    with pytest.raises(StepError, match="A batch of 1 samples has states of 2"):
        measure(Doubling(), [images(4), images(1)])


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.blocks = nn.Embedding(12, 6, dtype=torch.float64), known_rates(*RATES)

    def forward(self, input_ids, attention_mask=None):
        return self.blocks(self.embed(input_ids))


def _rank(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )  # fmt: skip
    x, y = images(10), torch.arange(10) % 3
    shares = {"uneven": (7, 10), "empty": (10, 10)}
    for name, (first, last) in shares.items():
        mine = slice(0, first) if rank == 0 else slice(first, last)
        batches = zip(x[mine].split(3), y[mine].split(3), strict=True)
        measure(classifier(*RATES), batches).save(f"{folder}/{name}{rank}.json")
    soft = (images(4), torch.rand(4, 3))
    measure(classifier(*RATES), [soft] if rank else []).save(f"{folder}/soft{rank}.json")
    many, labels = images(2000), torch.tensor([0] * 100 + [1] * 1900)
    mine = slice(0, 100) if rank == 0 else slice(100, 2000)
    fair = measure(classifier(*RATES), [(many[mine], labels[mine])], keep=400)
    fair.save(f"{folder}/fair{rank}.json")
    words = {"input_ids": torch.arange(12).reshape(4, 3)}
    text = measure(Reader(), [words] if rank else [])
    text.save(f"{folder}/text{rank}.json")
    broken = (images(2) if i == 0 else 1 / 0 for i in range(2))
    with pytest.raises(StepError, match="Rank 1 could not measure its samples: ZeroDivisionError"):
        measure(classifier(*RATES), broken if rank else [images(4)])
    with pytest.raises(NonFiniteError, match="is NaN for sample 2"):  # and the other one waits
        measure(classifier(*RATES), [spoilt(float("nan")) if rank else images(4)])
    torch.distributed.destroy_process_group()


def test_two_ranks_give_the_report_of_one(tmp_path):
    """Uneven shares, and one rank without any; at the end, one with an error, which both raise."""
    x, y = images(10), torch.arange(10) % 3
    alone = measure(classifier(*RATES), [(x, y)])
    torch.multiprocessing.spawn(_rank, (str(tmp_path),), nprocs=2)
    for name in ("uneven0", "uneven1", "empty0", "empty1"):
        report = StiffnessReport.load(tmp_path / f"{name}.json")
        assert report.samples == 10
        assert report.tns == pytest.approx(alone.tns, rel=RTOL["merge"])
        assert report.accuracy == alone.accuracy
        np.testing.assert_array_equal(report.kept.number, np.arange(10))
        np.testing.assert_allclose(report.nsi, alone.nsi, rtol=RTOL["merge"])
        np.testing.assert_array_equal(report.kept.label, alone.kept.label)
    for name in ("soft", "text", "fair"):
        first, second = (tmp_path / f"{name}{rank}.json" for rank in (0, 1))
        assert first.read_text() == second.read_text(), name
    assert "not one class a sample" in " ".join(StiffnessReport.load(tmp_path / "soft0.json").notes)
    assert StiffnessReport.load(tmp_path / "text0.json").noun == "samples"
    label = StiffnessReport.load(tmp_path / "fair0.json").kept.label
    few, expected = int((label == 0).sum()), 400 * 100 / 2000
    assert len(label) == 400
    assert abs(few - expected) < 4 * np.sqrt(expected)  # a rank of few samples has its share


def test_every_number_says_what_made_it():
    facts = measure(known_rates(*RATES), [images(2)], facts={"data": "noise"}).facts
    assert facts["data"] == "noise"
    assert "torch" in facts["versions"]
    assert facts["precision"] == "float64"
