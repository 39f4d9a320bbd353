"""``stiffnet demo``: train a small network on embedded images, and see its stiffness change."""

from pathlib import Path
from typing import Annotated

import typer

from stiffnet.cli.progress import progress

MODEL = "resnet20_cifar"
EPOCHS = 8
SIZE = 16  # pixels; the digits have 8


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="For what it writes.")] = Path("demo"),
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Of the weights and the order.")
    ] = 0,
) -> None:
    """Train a small residual network on digits, measure it before and after, write a page."""
    import torch
    from rich.console import Console

    from stiffnet.data.digits import digits
    from stiffnet.data.images import Preparation
    from stiffnet.files import atomic_write_all, check_writable
    from stiffnet.measure import measure
    from stiffnet.network.folder import write_folder
    from stiffnet.network.load import create_model
    from stiffnet.report.stiffness import StiffnessReport, page
    from stiffnet.train.loop import fit

    check_writable(out)
    train, test = digits("train"), digits("test")
    preparation = Preparation((1, SIZE, SIZE), mean=(0.3,), std=(0.38,))
    options = {"num_classes": len(train.classes), "in_chans": 1}
    model = create_model(MODEL, num_classes=options["num_classes"], in_chans=1, seed=seed)
    facts = {"model": MODEL, "form": "train", "data": test.name, "command": "stiffnet demo"}

    def look(weights: str) -> StiffnessReport:
        batches = test.batches(preparation, batch_size=120)
        told = {**facts, "weights": weights}
        with progress(f"measuring, {weights}", len(test)) as advance:
            return measure(model, batches, classes=test.classes, facts=told, on_batch=advance)

    before = look(f"random, seed {seed}")
    batch = 32
    with progress(f"training {MODEL} on digits", EPOCHS * (len(train) // batch)) as advance:
        torch.manual_seed(seed)
        for _ in fit(
            model,
            train,
            preparation,
            epochs=EPOCHS,
            batch_size=batch,
            learning_rate=0.1,
            padding=0,
            seed=seed,
            on_step=lambda: advance(1),
        ):
            pass
    after = look(f"trained for {EPOCHS} epochs")

    write_folder(
        out / "trained",
        model,
        name=MODEL,
        options=options,
        classes=train.classes,
        preparation=preparation,
        made_by={"command": "stiffnet demo", "epochs": EPOCHS, "seed": seed},
    )
    shown = page(
        [before, after],
        titles=["before training", "after training"],
        heading=f"{MODEL} on digits, before and after training",
    )
    made = {"before.json": before.to_json(), "after.json": after.to_json(), "report.html": shown}
    atomic_write_all({out / name: content for name, content in made.items()})
    console = Console()
    console.print(after)
    console.print(
        f"TNS went from {before.tns:.3f} to {after.tns:.3f}, "
        f"accuracy from {before.accuracy:.1%} to {after.accuracy:.1%}.\n"
        f"Measure it again: stiffnet measure {out / 'trained'} --data digits\n"
        f"The report: {out / 'report.html'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
