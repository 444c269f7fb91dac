"""Losses may be reported in many forms; what cannot be a batch's losses is refused by name."""

import time
import warnings
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import packed
import pytest
from shade_load import Batch, Daemon, Loader, Plan

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

BATCH = 8


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    root = tmp_path_factory.mktemp("losses")
    packed.image_folder(root / "folder", "png")
    dataset = packed.pack(root / "folder", root / "data.shade")
    plan, daemon = Plan(sampler="pads", cover=0), Daemon(ring="16MiB")
    with Loader(dataset.path, BATCH, image_size=packed.SIDE, plan=plan, daemon=daemon) as loader:
        yield loader


@pytest.fixture
def batch(loader: Loader) -> Batch:
    return next(iter(loader))


GOOD = {
    "list": [0.5] * BATCH,
    "tuple of ints": tuple(range(BATCH)),
    "array": array("d", range(BATCH)),
    "range": range(BATCH),
    "float32 tensor": torch.rand(BATCH),
    "float64 tensor": torch.rand(BATCH, dtype=torch.float64),
    "bfloat16 tensor": torch.rand(BATCH, dtype=torch.bfloat16),
    "tensor in a graph": torch.rand(BATCH, requires_grad=True) * 2,
    "strided tensor": torch.rand(3 * BATCH)[::3],
    "numpy float32": numpy.ones(BATCH, numpy.float32),
    "numpy float64 reversed": numpy.arange(BATCH, dtype=numpy.float64)[::-1],
    "read-only numpy": numpy.broadcast_to(numpy.float32(1), (BATCH,)),
    "not finite": [float("nan"), float("inf"), -float("inf")],
    "the first few": torch.rand(3),
    "none at all": torch.empty(0),
    "empty list": [],
}


@pytest.mark.parametrize("form", GOOD)
def test_losses_in_any_form_are_taken(loader: Loader, batch: Batch, form: str) -> None:
    loader.report(batch, GOOD[form])
    assert loader.stats()["total"]["unmatched_reports"] == 0


BAD = {
    "mean loss": (torch.tensor(1.0), "one value per sample"),
    "a row per sample": (torch.rand(BATCH, 1), "one value per sample"),
    "too many": (torch.rand(BATCH + 1), f"{BATCH + 1} values for a batch of {BATCH}"),
    "too long a list": ([1.0] * (BATCH + 1), f"{BATCH + 1} values for a batch of {BATCH}"),
    "numpy integers": (numpy.arange(BATCH), "float32 or float64"),
    "bytes": (bytes(BATCH), "bytes"),
    "text": ("12345678", None),
    "number": (1.0, None),
    "words": (["a", "b"], None),
    "none": (None, None),
}


@pytest.mark.parametrize("form", BAD)
def test_what_is_no_losses_is_refused(loader: Loader, batch: Batch, form: str) -> None:
    losses, text = BAD[form]
    with pytest.raises((TypeError, ValueError), match=text):
        loader.report(batch, losses)


@pytest.mark.parametrize(
    "form", ["list", "float32 tensor", "float64 tensor", "strided tensor", "numpy reversed"]
)
def test_values_arrive_in_the_batch_order(tmp_path_factory: pytest.TempPathFactory, form: str) -> None:
    """The form must not change what is drawn: every form leads to the plan that a list leads to."""
    root = tmp_path_factory.mktemp("values")
    packed.image_folder(root / "folder", "png")
    dataset = packed.pack(root / "folder", root / "data.shade")
    make = {
        "list": lambda values: values,
        "float32 tensor": torch.tensor,
        "float64 tensor": lambda values: torch.tensor(values, dtype=torch.float64),
        "strided tensor": lambda values: torch.tensor([value for value in values for _ in range(2)])[::2],
        "numpy reversed": lambda values: numpy.array(values[::-1], numpy.float32)[::-1],
    }

    def report_all(loader: Loader, form: str) -> None:
        for batch in loader:
            loader.report(batch, make[form]([float(sample * 37 % 61) for sample in batch.ids.tolist()]))

    def second_epoch(job: str, form: str) -> list[int]:
        plan, daemon = Plan(sampler="pads", cover=0), Daemon(job=job)
        with Loader(dataset.path, BATCH, image_size=packed.SIDE, plan=plan, daemon=daemon) as loader:
            report_all(loader, form)
            return [sample for batch in loader for sample in batch.ids.tolist()]

    assert second_epoch("as-list", "list") == second_epoch("as-form", form)


def test_late_and_missing_reports_are_fine(loader: Loader) -> None:
    late = []
    for number, batch in enumerate(loader):
        if number % 3 == 0:
            late.append(batch)
    for batch in reversed(late):
        loader.report(batch, [1.0] * len(batch))
    late.clear()
    old = batch
    assert len(list(islice(loader, 3))) == 3
    assert {batch.epoch for batch in loader} == {old.epoch + 1}
    loader.report(old, [1.0] * len(old))
    loader.report_validation(0.75)
    assert {batch.epoch for batch in loader} == {old.epoch + 2}


def epoch_ids(loader: Loader) -> list[int]:
    return sorted(sample for batch in loader for sample in batch.ids.tolist())


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("silent")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.mark.parametrize("sampler", ["pads", "iis", "cis"])
def test_without_reports_epochs_are_permutations_and_one_warning_says_so(silent: packed.Packed, sampler: Any) -> None:
    plan, daemon = Plan(sampler=sampler), Daemon(job=sampler)
    with warnings.catch_warnings(record=True) as caught, Loader(silent.path, BATCH, plan=plan, daemon=daemon) as loader:
        warnings.simplefilter("always")
        for _ in range(7):
            assert epoch_ids(loader) == list(range(len(silent)))
        assert loader.stats()["epoch"]["reports_missing"]
        assert loader.stats()["total"]["reported_share"] == 0
    texts = [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
    assert len(texts) == 1, texts
    for part in (f"sampler '{sampler}'", "report(batch, losses)", "permutations"):
        assert part in texts[0]
    assert caught[0].filename == __file__, "it points at the loop"


@pytest.mark.parametrize(("sampler", "train"), [("uniform", True), (None, True), (None, False)])
def test_what_draws_by_no_loss_is_not_warned(silent: packed.Packed, sampler: Any, train: bool) -> None:
    plan, daemon = Plan(sampler=sampler), Daemon(job="quiet")
    with warnings.catch_warnings(), Loader(silent.path, BATCH, train=train, plan=plan, daemon=daemon) as loader:
        warnings.simplefilter("error")
        for _ in range(3):
            assert epoch_ids(loader) == list(range(len(silent)))


def test_a_partial_report_is_used_and_counted(silent: packed.Packed) -> None:
    plan, daemon = Plan(sampler="pads", cover=0), Daemon(job="partial")
    with warnings.catch_warnings(), Loader(silent.path, BATCH, plan=plan, daemon=daemon) as loader:
        warnings.simplefilter("error")
        for batch in loader:
            if batch.index == 1:
                loader.report(batch, [1.0, 2.0])
        figures = loader.stats()["epoch"]
        assert (figures["reported"], figures["delivered"]) == (2, len(silent))
        assert figures["reported_share"] == pytest.approx(2 / len(silent))
        assert epoch_ids(loader) != list(range(len(silent)))


def test_losses_outlive_an_epoch_that_the_daemon_began_and_the_loop_did_not(silent: packed.Packed) -> None:
    """As a second `Trainer.fit` of Lightning does: an iterator first, and then its epoch."""
    plan, daemon = Plan(sampler="pads", cover=0), Daemon(job="detour")
    with warnings.catch_warnings(), Loader(silent.path, BATCH, plan=plan, daemon=daemon) as loader:
        warnings.simplefilter("error")
        for batch in loader:
            loader.report(batch, [float(sample) for sample in batch.ids.tolist()])
        iterator = iter(loader)
        while loader.stats()["epoch"]["delivered"] < len(silent):
            time.sleep(0.01)  # until the daemon has drawn and published it all
        loader.set_epoch(5)
        seen = sorted(sample for batch in iterator for sample in batch.ids.tolist())
        assert len(seen) == len(silent) and seen != list(range(len(silent))), "drawn by losses"


def test_a_warning_that_is_an_error_costs_no_batch(silent: packed.Packed) -> None:
    plan, daemon = Plan(sampler="pads"), Daemon(job="strict")
    with warnings.catch_warnings(), Loader(silent.path, BATCH, plan=plan, daemon=daemon) as loader:
        warnings.simplefilter("error")
        epoch_ids(loader)
        iterator = iter(loader)
        seen = next(iterator).ids.tolist()
        with pytest.raises(RuntimeWarning, match="no loss was reported"):
            next(iterator)
        seen += [sample for batch in iterator for sample in batch.ids.tolist()]
        assert sorted(seen) == list(range(len(silent)))


def test_one_rank_may_report_for_all(silent: packed.Packed) -> None:
    """Ranks that report nothing themselves ask the daemon, and are not warned."""
    seen: dict[int, list[int]] = {}

    def train(rank: int) -> None:
        plan, daemon = Plan(sampler="pads", cover=0), Daemon(job="shared")
        with Loader(silent.path, BATCH, rank=rank, world_size=2, plan=plan, daemon=daemon) as loader:
            for _ in range(3):
                seen[rank] = []
                for batch in loader:
                    seen[rank] += batch.ids.tolist()
                    if rank == 1:
                        loader.report(batch, [float(sample) for sample in batch.ids.tolist()])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(2) as threads:
            for outcome in [threads.submit(train, rank) for rank in range(2)]:
                outcome.result()
    assert sorted(seen[0] + seen[1]) != list(range(len(silent)))
