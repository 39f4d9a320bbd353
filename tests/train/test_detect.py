"""Detection is a task of the same loop: its losses, its precisions, its checkpoints, its ranks."""

import contextlib
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from safetensors.torch import load_file, save_file

from data.boxed import write_coco
from naming import case
from stiffnet.data import open_splits
from stiffnet.data.coco import coco
from stiffnet.errors import (
    CheckpointError,
    DataError,
    RecipeError,
    StiffnetError,
    UnknownNameError,
)
from stiffnet.network.attach import attached
from stiffnet.network.create import create_model
from stiffnet.network.detector import body_of
from stiffnet.network.open import open_model
from stiffnet.train.frozen import freeze_stages, hold_norms
from stiffnet.train.initial import fast_parameters, initial_network
from stiffnet.train.recipe import Recipe
from stiffnet.train.recipe_file import build_recipe
from stiffnet.train.recipes import RECIPES
from stiffnet.train.run import Machinery, run
from stiffnet.train.schedule import learning_rate
from stiffnet.train.tasks import task_of
from stiffnet.train.tasks.detect import NAMES, PARTS, average_precisions
from tolerances import RTOL
from train import faults
from train.test_ranks import finish_ranks

TINY = "fasterrcnn-small:test_resnet"
SIDE = 64
SMALL = Recipe(
    task="detect", model=TINY, data="shapes", train_images=6, epochs=2, batch_size=2,
    image_size=SIDE, learning_rate=0.01, schedule="onecycle", clip_norm=10.0, crop="none",
)  # fmt: skip


def detected(boxes, labels, scores):
    return {
        "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        "labels": torch.tensor(labels, dtype=torch.int64),
        "scores": torch.tensor(scores, dtype=torch.float32),
    }


@pytest.fixture(scope="module")
def boxed(tmp_path_factory):
    return write_coco(tmp_path_factory.mktemp("coco") / "d")


def wanted_in(spec):
    _, test = open_splits(spec)
    preparation = open_model(TINY).preparation
    return [each for batch in test.batches(preparation, batch_size=3) for each in batch["targets"]]


def test_a_perfect_answer_scores_one_and_none_scores_zero(boxed):
    wanted = wanted_in(f"coco:{boxed}")
    perfect = [
        {**{key: each[key][each["iscrowd"] == 0] for key in ("boxes", "labels")},
         "scores": torch.ones(int((each["iscrowd"] == 0).sum()))}
        for each in wanted
    ]  # fmt: skip
    found = average_precisions(perfect, wanted)
    assert found["ap"] == found["ap50"] == found["ap75"] == found["ap_s"] == pytest.approx(1)
    assert found["ap_l"] is None  # nothing is large
    nothing = [detected([], [], []) for _ in wanted]
    assert average_precisions(nothing, wanted)["ap"] == 0
    wrong = [{**each, "labels": 3 - each["labels"]} for each in perfect]
    assert average_precisions(wrong, wanted)["ap"] == 0


def random_boxes(folder, rng):
    """Write a test split of 14 images with boxes of all sizes, crowds, and some beyond a border."""
    content = {"images": [], "annotations": [], "categories": []}
    content["categories"] = [{"id": id, "name": str(id)} for id in (90, 3, 50)]  # 50 is nowhere
    (folder / "annotations").mkdir(parents=True)
    (folder / "val").mkdir()
    for id in (1 + rng.permutation(30)[:14]).tolist():
        width, height = [(200, 150), (150, 200)][rng.integers(2)]
        Image.new("RGB", (width, height)).save(folder / "val" / f"{id}.png")
        name = {"id": id, "file_name": f"{id}.png"}
        content["images"].append({**name, "width": width, "height": height})
        for _ in range(rng.integers(0, 7)):
            box = [*rng.uniform(0, (width - 4, height - 4)), *rng.uniform(3, 140, 2)]
            content["annotations"].append({
                "id": 1 + len(content["annotations"]),
                "image_id": id,
                "category_id": int(rng.choice([3, 90])),
                "bbox": box,
                "area": box[2] * box[3] * rng.uniform(0.4, 1),
                "iscrowd": int(rng.random() < 0.15),
            })  # fmt: skip
    file = folder / "annotations" / "instances_val.json"
    file.write_text(json.dumps(content))
    return file, content


def found_near(content, rng, *, ties):
    """Return up to 100 boxes an image, some of them near the right ones, as COCO's results."""
    results = []
    for image in content["images"]:
        there = [box for box in content["annotations"] if box["image_id"] == image["id"]]
        near = [(box["bbox"], box["category_id"]) for box in there]
        chance = [
            ([*rng.uniform(0, 60, 2), *rng.uniform(5, 60, 2)], int(rng.choice([3, 50, 90])))
            for _ in range(rng.integers(0, 80))
        ]
        for (left, top, width, height), category in [*near, *near, *chance]:
            off = rng.normal(0, 4, 4) * (rng.random() < 0.7)
            far = (left + width + off[2], top + height + off[3])
            corners = np.clip([left + off[0], top + off[1], *far], 0, 200).astype(np.float32)
            if corners[2] > corners[0] and corners[3] > corners[1]:
                score = rng.integers(1, 4) / 4 if ties else float(np.float32(rng.random()))
                sides = (corners[2:].astype(np.float64) - corners[:2]).tolist()
                results.append({
                    "image_id": image["id"], "category_id": category, "score": score,
                    "bbox": [*corners[:2].tolist(), *sides], "corners": corners.tolist(),
                })  # fmt: skip
    return results


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_pycocotools_itself_finds_the_same_numbers(tmp_path, seed, ties):
    """On the file as it is: gaps, crowds, areas, boxes beyond a border, unordered ids, ties."""
    rng = np.random.default_rng(seed)
    file, content = random_boxes(tmp_path / "d", rng)
    results = found_near(content, rng, ties=ties)
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO(str(file))
        judge = COCOeval(known, known.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    expected = dict(zip(NAMES, judge.stats[:6].tolist(), strict=True))
    assert 0 < expected["ap"] < 1
    test = coco(tmp_path / "d")
    assert test.classes == ("3", "50", "90")
    batches = test.batches(open_model(TINY).preparation, batch_size=3)
    kept = []
    for chosen, batch in zip(batches.indices, batches, strict=True):
        found = []
        for file_name in (test.pictures.files[index] for index in chosen):
            own = [each for each in results if f"{each['image_id']}.png" == file_name]
            labels = [{3: 1, 50: 2, 90: 3}[each["category_id"]] for each in own]
            scores = [each["score"] for each in own]
            found.append(detected([each["corners"] for each in own], labels, scores))
        kept.append((found, batch["targets"]))
    ours = task_of(SMALL).tested({}, kept)
    for name, value in expected.items():
        with case(name):
            assert ours[name] == (None if value < 0 else pytest.approx(value, abs=1e-6))


def test_the_loss_is_the_sum_of_torchvisions_four():
    task, detector = task_of(SMALL), create_model(TINY, num_classes=2, image_size=SIDE).train()
    train, _ = open_splits("shapes")
    batch = next(iter(train.batches(open_model(TINY).preparation, batch_size=3)))
    torch.manual_seed(0)
    judged = task.judge(detector, batch, training=True)
    torch.manual_seed(0)
    parts = detector(batch["images"], batch["targets"])
    assert parts.keys() == set(PARTS)
    assert judged.loss.item() == pytest.approx(3 * sum(part.item() for part in parts.values()))
    assert judged.samples == 3


def outcome(folder):
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("images_per_second")
    return rows, load_file(folder / "final" / "weights.safetensors")


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    out = tmp_path_factory.mktemp("calm") / "run"
    result = run(replace(SMALL, attention="stepnet", ema_decay=0.9), out)
    return out, result


def test_a_run_that_was_stopped_within_an_epoch_ends_with_the_same_bits(calm, tmp_path):
    recipe = replace(SMALL, attention="stepnet", ema_decay=0.9)
    with pytest.raises(StiffnetError, match="which is kept in"):
        run(recipe, tmp_path / "run", audience=faults.Stopper(4))
    run(recipe, tmp_path / "run", resume=True)
    (rows, weights), (expected, same) = outcome(tmp_path / "run"), outcome(calm[0])
    assert rows == expected
    assert all(torch.equal(weights[name], tensor) for name, tensor in same.items())


def test_the_log_has_precisions_in_the_place_of_top1(calm):
    rows, _ = outcome(calm[0])
    assert list(rows[0])[3:] == [
        "train_loss", *(f"train_{name}" for name in PARTS), *(f"test_{name}" for name in NAMES)
    ]  # fmt: skip
    assert rows[0]["test_ap_l"] is None
    for row in rows:
        assert row["train_loss"] == pytest.approx(sum(row[f"train_{name}"] for name in PARTS))
    assert calm[1].best["test_ap"] == max(row["test_ap"] for row in rows)
    assert "Test AP " in calm[1].conclusion
    opened = open_model(calm[0] / "final")
    assert opened.classes == ("square", "disc")
    assert opened.options["num_classes"] == 2


def test_two_ranks_come_to_the_precision_of_one(tmp_path):
    """The trained networks differ, as ranks choose boxes for themselves; an untrained one not."""
    recipe = replace(SMALL, learning_rate=1e-30, weight_decay=0.0, epochs=1, train_images=4)
    finish_ranks(recipe, tmp_path / "two", pictures=False)
    run(recipe, tmp_path / "one")
    one, two = (outcome(tmp_path / name)[0][0] for name in ("one", "two"))
    assert one["test_ap50"] > 0
    for name in NAMES:
        expected = one[f"test_{name}"]
        assert two[f"test_{name}"] == (expected and pytest.approx(expected, rel=0.01)), name
    files = [tmp_path / name / "final" / "weights.safetensors" for name in ("one", "two")]
    one, two = ({k: v for k, v in load_file(f).items() if "running" in k} for f in files)
    assert one
    for name, expected in one.items():  # over the images of both ranks
        margin = RTOL["batch32"] * float(expected.abs().max())
        torch.testing.assert_close(two[name], expected, rtol=0.0, atol=margin)


def test_tns_of_a_detector_is_measured_after_each_epoch(tmp_path):
    machinery = Machinery(tns=2, attention_values=2)
    run(replace(SMALL, epochs=1, attention="se"), tmp_path / "run", machinery=machinery)
    [row] = outcome(tmp_path / "run")[0]
    assert "tns" in row
    assert list((tmp_path / "run").glob("attention/*"))


@pytest.mark.parametrize("attention", ["none", "stepnet"])
def test_a_backbone_starts_from_the_file_of_a_classifier(tmp_path, attention):
    """Modules that the file holds get their weights, and those that it does not change nothing."""
    given = None if attention == "none" else attention
    classifier = create_model("test_resnet", num_classes=7, attention=given, seed=3)
    for name, parameter in classifier.named_parameters():
        if "bn" in name:
            torch.nn.init.ones_(parameter)  # timm begins with branches that are zero
    save_file(classifier.state_dict(), tmp_path / "w.safetensors")
    for asked in {attention, "stepnet"}:
        recipe = replace(SMALL, attention=asked, weights=str(tmp_path / "w.safetensors"), seed=1)
        loaded, notes = initial_network(recipe, 2, ("square", "disc"))
        assert notes == []
        assert loaded.options["attention"] == (None if asked == "none" else asked)
        assert bool(attached(loaded.model)) == (asked != "none")
        body, held = body_of(loaded.model).state_dict(), classifier.state_dict()
        for name in body.keys() & held.keys():
            assert torch.equal(body[name], held[name]), name
        assert len(body.keys() & held.keys()) > 20
        x = torch.rand(1, 3, SIDE, SIDE)
        plain = body_of(create_model(TINY))
        plain.load_state_dict({name: body[name] for name in plain.state_dict()})
        with torch.no_grad():
            mine, theirs = body_of(loaded.model).eval()(x)[-1], plain.eval()(x)[-1]
        same = torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5)
        assert same == (attention == "none" or asked == "none")


def test_a_detector_that_was_trained_is_trained_on(calm, tmp_path):
    recipe = replace(SMALL, model=str(calm[0] / "final"), epochs=1)
    run(recipe, tmp_path / "run")
    recipe = replace(SMALL, weights=str(calm[0] / "final"), attention="stepnet")
    loaded, notes = initial_network(recipe, 2, ("square", "disc"))
    _, weights = outcome(calm[0])
    state = loaded.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in weights.items())
    assert "its head is kept" in notes[0]


def test_the_first_stage_and_the_norms_are_frozen_and_modules_are_not(tmp_path):
    detector = create_model("fasterrcnn-small:resnet18", attention="stepnet").train()
    freeze_stages(detector, 1)
    hold_norms(detector)
    gates = {sits.name for sits in attached(detector)}
    for name, parameter in body_of(detector).named_parameters():
        path = f"backbone.body.{name}"
        gate = any(path.startswith(f"{each}.") for each in gates)
        first = name.split(".")[0] in ("conv1", "bn1", "layer1")
        assert parameter.requires_grad == (gate or not first), name
    norms = {
        name: module.training
        for name, module in detector.named_modules()
        if isinstance(module, torch.nn.BatchNorm2d)
    }
    assert not any(trains for name, trains in norms.items() if name.split(".")[-1] != "norm")
    assert all(parameter.requires_grad for parameter in detector.rpn.parameters())
    with pytest.raises(RecipeError, match="`frozen_stages` is 5, and the backbone has 4"):
        freeze_stages(detector, 5)


@pytest.mark.parametrize("attention", ["iebn", "asr:iebn"])
def test_a_norm_that_a_module_took_the_place_of_is_frozen_too(attention):
    """Its statistics, and of the first stage its weight and shift; what is new of it learns."""
    detector = create_model(TINY, attention=attention).train()
    plain = {name for name, _ in create_model(TINY).named_parameters()}
    freeze_stages(detector, 1)
    hold_norms(detector)
    assert attached(detector)
    for sits in attached(detector):
        norm = detector.get_submodule(sits.name)
        assert not norm.training
        before = norm.running_mean.clone()
        norm(torch.rand(2, norm.num_features, 3, 3))
        assert torch.equal(norm.running_mean, before)
    for name, parameter in detector.named_parameters():
        first = name.startswith(
            tuple(f"backbone.body.{part}" for part in ("conv1", "bn1", "layer1"))
        )
        assert parameter.requires_grad == (name not in plain or not first), name


def test_what_is_frozen_stays_as_it_was(tmp_path):
    classifier = create_model("test_resnet", seed=3)
    save_file(classifier.state_dict(), tmp_path / "w.safetensors")
    recipe = replace(SMALL, weights=str(tmp_path / "w.safetensors"), epochs=1,
                     frozen_stages=1, frozen_norms=True)  # fmt: skip
    run(recipe, tmp_path / "run")
    _, weights = outcome(tmp_path / "run")
    held = classifier.state_dict()
    for name, tensor in held.items():
        if (key := f"backbone.body.{name}") not in weights:
            continue
        frozen = "running" in name or "num_batches" in name
        frozen |= name.startswith(("conv1", "bn1", "layer1"))
        assert not frozen or torch.equal(weights[key], tensor), name
    assert not torch.equal(weights["backbone.body.layer4.0.conv1.weight"],
                           held["layer4.0.conv1.weight"])  # fmt: skip


def test_only_the_backbone_learns_slowly():
    loaded = open_model(TINY, attention="se")
    slow = {name for name, _ in loaded.model.named_parameters()} - fast_parameters(loaded)
    assert slow == {
        f"backbone.body.{name}" for name, _ in create_model("test_resnet").named_parameters()
        if not name.startswith("fc.")
    }  # fmt: skip


def test_the_recipe_is_mmdetections():
    recipe = RECIPES["stepnet-fasterrcnn"].value
    assert (recipe.learning_rate, recipe.batch_size, recipe.epochs) == (0.02, 16, 12)
    assert (recipe.momentum, recipe.weight_decay, recipe.milestones) == (0.9, 1e-4, (8, 11))
    assert (recipe.image_size, recipe.flip, recipe.frozen_stages, recipe.frozen_norms) == (
        800, True, 1, True,
    )  # fmt: skip
    per_epoch = math.ceil(117_266 / 16)
    rates = [learning_rate(recipe, step, per_epoch) for step in (0, 249, 499, 501, 8 * per_epoch)]
    assert rates == pytest.approx([0.02 / 500, 0.01, 0.02, 0.02, 0.002], rel=0.01)


def test_quick_and_smoke_are_others_for_detectors():
    for name in ("quick", "smoke"):
        for given in ({"model": "fasterrcnn:resnet18"}, {"data": "coco:/a"}, {"data": "shapes"}):
            assert build_recipe(name, **given).task == "detect"
        assert build_recipe(name, model="resnet18").task == "classify"
    assert build_recipe("asr-resnet34", data="shapes").task == "classify"  # which is refused


def test_what_does_not_go_together_is_refused(boxed, tmp_path):
    for change, kind, said in (
        ({"crop": "pad"}, RecipeError, "`crop` is 'pad', but `task` is 'detect'"),
        ({"precision": "bf16-true"}, RecipeError, "half a float does not tell the pixels"),
        ({"precision": "16-mixed"}, RecipeError, "half a float does not tell the pixels"),
        (
            {"batch_size": 1, "attention": "stepnet"},
            RecipeError,
            "a rank's share of a batch of 1 images is one image",
        ),
        ({"label_smoothing": 0.1}, RecipeError, "`label_smoothing` is 0.1, but `task` is 'detect'"),
        (
            {"data": "digits", "train_images": 0},
            DataError,
            "A detector learns from boxes, and digits-train has none",
        ),
        ({"model": "resnet20_cifar"}, RecipeError, "resnet20_cifar is no detector"),
        ({"task": "classify"}, DataError, "shapes-train holds boxes, from which a detector learns"),
        ({"frozen_stages": 1}, RecipeError, "`frozen_stages` is 1, but .* random .* to 0"),
        ({"frozen_norms": True}, RecipeError, "`frozen_norms` is True, but .* random .* to false"),
        ({"model": "fasterrcnn:vit_tiny_patch16_224"}, CheckpointError, "gives no feature maps"),
        ({"model": "fasterrcnn:resnet5"}, UnknownNameError, "no model called 'resnet5'. Did you"),
        ({"model": "fasterrcnn:"}, UnknownNameError, "no detector called 'fasterrcnn:'"),
    ):
        with case(change), pytest.raises(kind, match=said):
            run(replace(SMALL, **change), tmp_path / said)
    with pytest.raises(RecipeError, match="`frozen_norms` is True, but `task` is 'classify'"):
        task_of(Recipe(frozen_norms=True))
    with pytest.raises(RecipeError, match="`batch_size` is 2, which leaves a rank without"):
        task_of(SMALL).judge(None, {"images": [], "targets": []}, training=True)
