"""Losses are credited to the samples of the batch that is reported, or to none."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import packed
import pytest
import torch
from shade_load import Daemon, Loader, Plan

BATCH = 8


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[packed.Packed]:
    root = tmp_path_factory.mktemp("reports")
    for name, classes in (("first", packed.CLASSES), ("second", {"ant": 70, "bee": 30})):
        packed.image_folder(root / name, "png", classes)
    return [packed.pack(root / name, root / f"{name}.shade") for name in ("first", "second")]


def opened(dataset: packed.Packed, job: str = "trains", **options: Any) -> Loader:
    options = {"image_size": packed.SIDE, "plan": Plan(sampler="pads"), **options}
    return Loader(dataset.path, BATCH, daemon=Daemon(job=job), **options)


def figures(loader: Loader) -> tuple[int, int]:
    total = loader.stats()["total"]
    return total["reported"], total["unmatched_reports"]


OTHERS: dict[str, Callable[[list[packed.Packed]], Loader]] = {
    "another job": lambda datasets: opened(datasets[0], "another"),
    "another dataset": lambda datasets: opened(datasets[1]),
    "the validation": lambda datasets: opened(datasets[0], train=False, plan=Plan()),
    "raw records": lambda datasets: opened(datasets[0], "raw", image_size=None),
    "several views": lambda datasets: opened(
        datasets[0], "views", image_size=None, decode=[[_crop()], [_crop()]]
    ),
    "own sizes": lambda datasets: opened(datasets[0], "sizes", image_size=None, decode="none"),
}


def _crop() -> Any:
    from shade_load.transforms import CenterCrop

    return CenterCrop(8)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("how", ["as it is", "moved", "copied out of the ring", "of a closed Loader"])
def test_a_batch_of_another_loader_is_refused(datasets: list[packed.Packed], other: str, how: str) -> None:
    with ExitStack() as stack:
        training = stack.enter_context(opened(datasets[0]))
        ours = next(iter(training))
        elsewhere = stack.enter_context(OTHERS[other](datasets))
        batches = iter(elsewhere)
        kept = [next(batches) for _ in range(4 if how == "copied out of the ring" else 1)]
        theirs = kept[-1].to("cpu") if how == "moved" else kept[-1]
        if how == "of a closed Loader":
            elsewhere.close()
        assert (theirs.epoch, len(theirs)) == (ours.epoch, len(ours)), "the numbers would fit"
        with pytest.raises(ValueError, match=r"^batch: got batch \d+ of epoch 0 of another session"):
            training.report(theirs, torch.ones(len(theirs)))
        assert figures(training) == (0, 0)
        training.report(ours.to("cpu") if how == "moved" else ours, [1.0] * len(ours))
        assert figures(training) == (len(ours), 0)


def test_a_batch_of_before_a_restart_is_refused(datasets: list[packed.Packed]) -> None:
    with opened(datasets[0]) as training:
        old = next(iter(training))
    with opened(datasets[0]) as training:
        iter(training)
        with pytest.raises(ValueError, match="of another session"):
            training.report(old, [1.0] * len(old))
        with pytest.raises(TypeError, match="^batch: got a tuple"):
            training.report(tuple(next(iter(training))), [1.0])


def test_a_batch_of_before_a_loaded_state_is_refused(datasets: list[packed.Packed]) -> None:
    """With another batch size a batch of the same number has other samples."""
    with opened(datasets[0]) as training:
        next(iter(training))
        state = training.state_dict()
    with Loader(datasets[0].path, 5, image_size=packed.SIDE, plan=Plan(sampler="pads"), daemon=Daemon(job="five")) as training:
        before = list(training)
        training.load_state_dict(state)
        after = list(training)
        same = {(batch.epoch, batch.index): batch for batch in before}
        assert any(same[batch.epoch, batch.index].ids.tolist() != batch.ids.tolist() for batch in after)
        for batch in before:
            with pytest.raises(ValueError, match="before a state was loaded"):
                training.report(batch, [1.0] * len(batch))
        assert figures(training) == (0, 0)
        for batch in after:
            training.report(batch, [1.0] * len(batch))
        assert figures(training) == (sum(map(len, after)), 0)


def test_a_late_report_of_the_epoch_before_is_taken(datasets: list[packed.Packed]) -> None:
    with opened(datasets[0]) as training:
        batches = iter(training)
        first = [(batch.ids.tolist(), batch) for batch in batches]
        next(iter(training))
        for _, batch in first:
            training.report(batch, [1.0] * len(batch))
        assert figures(training) == (len(datasets[0]), 0)
        json.dumps(training.stats())
