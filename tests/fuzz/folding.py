"""The law of `fold`: the folded network computes what the network with its gates computed."""

import copy
from random import Random

import torch
from torch import nn

import stiffnet
from fuzz.attaching import with_gates
from fuzz.build import Case, distance, run
from fuzz.measuring import TOLERANCE
from fuzz.verdicts import WrongError


def hold_folding(case: Case) -> None:
    """Hold `fold` to the network that it folds, on other sizes than the example's."""
    rng = Random(case.made.seed)
    fuse = rng.random() < 0.4
    pair = with_gates(case, stiffnet.asr(rng.choice(("se", "se", "eca", "ie"))))
    model = copy.deepcopy(case.plain) if pair is None else pair[0]
    model.eval()
    before = copy.deepcopy(model.state_dict())
    classes = [type(module) for module in model.modules()]
    folded = stiffnet.fold(model, case.example, fuse=fuse, passes=0).model
    if [type(module) for module in model.modules()] != classes:
        raise WrongError("folding changed the classes of the original")
    after = model.state_dict()
    if list(after) != list(before) or not all(torch.equal(after[k], before[k]) for k in before):
        raise WrongError("folding changed the original")
    if not fuse:
        _hold_plain(case, folded)
    for x in case.others:
        got, expected = (run(m, x, training=False) for m in (folded, model))
        for one, other in zip(got.outputs, expected.outputs, strict=True):
            if not distance(one, other) <= TOLERANCE:
                raise WrongError(f"output after folding ({distance(one, other):.1e})")


def _hold_plain(case: Case, folded: nn.Module) -> None:
    """Without `fuse`, the result is the plain network again."""
    if list(folded.state_dict()) != list(case.plain.state_dict()):
        raise WrongError("keys of the folded network are not the plain one's")
    if [type(m) for m in folded.modules()] != [type(m) for m in case.plain.modules()]:
        raise WrongError("classes of the folded network are not the plain one's")
