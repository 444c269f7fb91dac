"""Losses may be reported in many forms; what cannot be a batch's losses is refused by name."""

from array import array
from collections.abc import Iterator
from itertools import islice

import packed
import pytest
from shade_load import Batch, Loader

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

BATCH = 8


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    root = tmp_path_factory.mktemp("losses")
    packed.image_folder(root / "folder", "png")
    dataset = packed.pack(root / "folder", root / "data.shade")
    with Loader(dataset.path, BATCH, image_size=packed.SIDE, ring="16MiB", cover=0) as loader:
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
    # The daemon still answers: it has taken the report for good.
    loader.stats()


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
        with Loader(dataset.path, BATCH, image_size=packed.SIDE, job=job, cover=0) as loader:
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
