"""Floats from the daemon's workers, beside torchvision's arithmetic on the same draws' bytes."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import torch
from shade_load import Batch, Daemon, Loader, Normalize, Plan
from shade_load.transforms import (
    CenterCrop,
    ColorJitter,
    Grayscale,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
)
from torchvision import transforms as tv
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
# Steps of a number between 1 and 2.
STEPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
FLIPPED = [RandomResizedCrop((13, 18)), RandomHorizontalFlip()]
# Each way in which a row is written.
DECODES: dict[str, Any] = {
    "resized": FLIPPED,
    "copied": [CenterCrop(11)],
    "black": [RandomCrop(24, padding=6), RandomHorizontalFlip()],
    "upside-down": [CenterCrop((9, 12)), RandomVerticalFlip()],
    "jittered": [*FLIPPED, ColorJitter(0.5, 0.5, 0.5, 0.2)],
    "before": [ColorJitter(0.5), RandomCrop(10)],
    "grey": [*FLIPPED, Grayscale()],
    "views": [FLIPPED, [CenterCrop(8)], [*FLIPPED, ColorJitter(0.3)]],
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[packed.Packed]:
    """With a daemon that stays for all tests, which start and end many trainings."""
    root = tmp_path_factory.mktemp("floats")
    packed.image_folder(root / "folder", "png")
    made = packed.pack(root / "folder", root / "data.shade")
    with Loader(made.path, 8, daemon=Daemon(job="stays")):
        yield made


def loader(dataset: packed.Packed, job: str, **options: Any) -> Loader:
    daemon = options.pop("daemon", Daemon(job=job))
    return Loader(dataset.path, 8, seed=11, daemon=daemon, **options)


def torchvisions(images: torch.Tensor, mean: Any, std: Any, dtype: str) -> torch.Tensor:
    steps = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std), v2.ToDtype(DTYPES[dtype])]
    return v2.Compose(steps)(images)


def views(batch: Batch) -> list[torch.Tensor]:
    return batch.images if isinstance(batch.images, list) else [batch.images]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", DECODES)
def test_floats_are_torchvisions_of_the_same_draws_to_the_last_bit(
    dataset: packed.Packed, name: str, dtype: str, channels_last: bool
) -> None:
    mean, std = ((0.45,), (0.25,)) if name == "grey" else (MEAN, STD)
    options: dict[str, Any] = {"decode": DECODES[name], "channels_last": channels_last, "plan": Plan(tail="pad")}
    layout = torch.channels_last if channels_last else torch.contiguous_format
    with (
        loader(dataset, "bytes", **options) as of_bytes,
        loader(dataset, "floats", dtype=dtype, normalize=(mean, std), **options) as of_floats,
    ):
        # All of them kept: some lie in the ring, and some are copies.
        with warnings.catch_warnings(action="ignore"):
            pairs = list(zip(of_bytes, of_floats, strict=True))
        assert sum(len(batch) for batch, _ in pairs) == 64 > len(dataset)
        for one, other in pairs:
            assert one.ids.tolist() == other.ids.tolist() and one.flags.tolist() == other.flags.tolist()
            for images, floats in zip(views(one), views(other), strict=True):
                assert floats.dtype == DTYPES[dtype] and floats.is_contiguous(memory_format=layout)
                assert torch.equal(floats, torchvisions(images, mean, std, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_byte_is_within_half_a_step_of_what_the_formula_gives(dataset: packed.Packed, dtype: str) -> None:
    """The formula in double precision: (x / 255 - mean) / std, or x / 255 without a mean."""
    seen = torch.zeros(256, dtype=torch.bool)
    for numbers in (None, (MEAN, STD), ([0.5], [0.5]), ((-3.0, 0.0, 1000.0), (1e-3, -0.25, 1e3))):
        options: dict[str, Any] = {"image_size": packed.SIDE, "train": False}
        with (
            loader(dataset, "levels", **options) as of_bytes,
            loader(dataset, f"levels-{dtype}", dtype=DTYPES[dtype], normalize=numbers, **options) as of_floats,
        ):
            mean, std = (torch.tensor(each, dtype=torch.float64).reshape(1, -1, 1, 1) for each in numbers or ([0.0], [1.0]))
            for one, other in zip(of_bytes, of_floats, strict=True):
                exact = (one.images.double() / 255 - mean) / std
                # Single precision rounds on the way, where numbers are as large as the mean.
                rounding = 2.0**-24 * (5 * exact.abs() + 3 * (mean / std).abs())
                step = STEPS[dtype] * 2.0 ** torch.floor(torch.log2(exact.abs().clamp(min=2.0**-14)))
                finite = exact.abs() < (65504 if dtype == "float16" else 1e38)
                assert ((other.images.double() - exact).abs() <= step / 2 + rounding)[finite].all()
                seen[one.images.unique().long()] = True
    assert seen.all()


ENDS: dict[str, list[Any]] = {
    "torchvision": [tv.ToTensor(), tv.Normalize(MEAN, STD)],
    "v2": [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)],
    "unscaled": [tv.ToTensor()],
}


@pytest.mark.parametrize("end", ENDS)
def test_a_recipe_as_it_stands_is_done_in_the_daemon_where_a_dtype_is_asked_for(dataset: packed.Packed, end: str) -> None:
    decode = tv.Compose([tv.CenterCrop(12), *ENDS[end]])
    with loader(dataset, "recipe", decode=decode) as here, loader(dataset, "recipe-there", decode=decode, dtype="float32") as there:
        assert isinstance(here._transform, Normalize) and there._transform is None
        assert (here._job["dtype"], there._job["dtype"]) == ("uint8", "float32")
        for one, other in zip(here, there, strict=True):
            assert torch.equal(one.images, other.images)
    doubled = {"decode": decode, "transform": lambda images: 2 * images}
    with loader(dataset, "recipe", **doubled) as here, loader(dataset, "recipe-there", dtype=torch.float32, **doubled) as there:
        assert torch.equal(next(iter(here)).images, next(iter(there)).images)


def test_the_ring_has_room_for_floats(dataset: packed.Packed) -> None:
    lengths = {}
    for dtype in ("uint8", *DTYPES):
        with Loader(dataset.path, 32, image_size=224, dtype=dtype, daemon=Daemon(job=f"ring-{dtype}")) as loading:
            lengths[dtype] = loading._session.payload[1]
    block = 32 * 3 * 224 * 224
    for dtype, value_bytes in {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4}.items():
        # Eight batches, each with some columns, in whole pages.
        assert 0 <= lengths[dtype] - 8 * value_bytes * block <= 8 * 8192, lengths


def test_without_torch_views_say_their_type_and_have_their_numbers(dataset: packed.Packed) -> None:
    for dtype in DTYPES:
        options: dict[str, Any] = {"image_size": packed.SIDE, "train": False, "dtype": dtype, "normalize": ([0.5], [1e-3])}
        with loader(dataset, f"plain-{dtype}", **options) as loading:
            expected = next(iter(loading))
            batch = Batch(expected._native, None, loading._fields, None, None)
            view: Any = batch.images
            assert (view.dtype, tuple(view.shape)) == (dtype, tuple(expected.images.shape))
            assert len(bytes(view)) == expected.images.numel() * expected.images.element_size()
            assert view.tolist() == expected.images.flatten().tolist()
            if dtype == "bfloat16":
                with pytest.raises((BufferError, TypeError, RuntimeError)):
                    np.from_dlpack(view)
            else:
                assert np.array_equal(np.from_dlpack(view), expected.images.numpy())


@pytest.mark.parametrize("on_error", ["skip", "substitute"])
def test_bad_records_leave_the_same_rows_as_in_bytes(dataset: packed.Packed, tmp_path: Path, on_error: str) -> None:
    damaged = dataset.copy_to(tmp_path / "damaged.shade")
    for sample in (3, 17, 40):
        shard, offset, length = damaged.stored(sample)
        with open(shard, "r+b") as file:
            file.seek(offset + length // 2)
            file.write(b"\xff" * 8)
    options: dict[str, Any] = {"decode": DECODES["views"], "plan": Plan(on_error=on_error)}
    with (
        loader(damaged, f"bytes-{on_error}", **options) as of_bytes,
        loader(damaged, f"floats-{on_error}", dtype="bfloat16", normalize=(MEAN, STD), **options) as of_floats,
    ):
        count = 0
        for one, other in zip(of_bytes, of_floats, strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            count += one.skipped + one.substituted
            for images, floats in zip(views(one), views(other), strict=True):
                assert torch.equal(floats, torchvisions(images, MEAN, STD, "bfloat16"))
        assert count == 3


def epochs(loading: Loader, count: int) -> Iterator[Batch]:
    for _ in range(count):
        yield from loading


def test_trainings_of_a_group_share_their_floats(dataset: packed.Packed) -> None:
    options: dict[str, Any] = {"decode": FLIPPED, "plan": Plan(group="floats")}
    with (
        loader(dataset, "shared-a", dtype="float16", **options) as first,
        loader(dataset, "shared-b", dtype="float16", **options) as second,
        loader(dataset, "shared-c", **options) as of_bytes,
    ):
        for one, other, plain in zip(epochs(first, 2), epochs(second, 2), epochs(of_bytes, 2), strict=True):
            assert torch.equal(one.images, other.images)
            assert torch.equal(one.images, torchvisions(plain.images, [0.0], [1.0], "float16"))
        assert first.stats()["decoded_bytes"] > 0


def test_a_successor_of_a_killed_daemon_goes_on_with_floats(dataset: packed.Packed, tmp_path: Path) -> None:
    own = dataset.copy_to(tmp_path / "own.shade")
    options: dict[str, Any] = {"decode": FLIPPED, "dtype": "bfloat16", "normalize": (MEAN, STD)}
    with loader(own, "undisturbed", **options) as loading:
        expected = [(batch.ids.tolist(), batch.images.clone()) for batch in epochs(loading, 2)]
    with loader(own, "killed", daemon=Daemon(job="killed", ring=1), **options) as loading:
        with warnings.catch_warnings(action="ignore"):
            for number, batch in enumerate(epochs(loading, 2)):
                ids, images = expected[number]
                assert batch.ids.tolist() == ids and torch.equal(batch.images, images), number
                if number in (2, 9):
                    os.kill(loading.daemon_pid, signal.SIGKILL)
        assert number == len(expected) - 1 and loading.stats()["successors"] == 2


NORMALIZED = [tv.CenterCrop(8), tv.ToTensor(), tv.Normalize(MEAN, STD)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dtype": "float16"}, "dtype: got .float16., but raw records are delivered; give image_size or decode"),
        ({"normalize": (MEAN, STD)}, "normalize: raw records are delivered; give image_size or decode"),
        ({"dtype": "float16", "decode": "none"}, r"dtype: .* images of their own sizes are bytes: .* Loader\(transform="),
        ({"image_size": 8, "normalize": (MEAN, STD)}, "normalize: got numbers with dtype .uint8.*give dtype .float32."),
        ({"image_size": 8, "dtype": "float64"}, "dtype: got 'float64', expected one of 'uint8', 'float32', 'float16', 'bf"),
        ({"image_size": 8, "dtype": torch.int32}, "dtype: got 'int32', expected one of"),
        ({"image_size": 8, "dtype": None}, "dtype: got None, expected one of"),
        ({"image_size": 8, "dtype": "float16", "normalize": MEAN}, r"normalize: got \(0.485.* expected \(mean, std\)"),
        ({"image_size": 8, "dtype": "float16", "normalize": (MEAN[:2], STD)}, "normalize: mean: got .* or one"),
        ({"image_size": 8, "dtype": "float16", "normalize": (MEAN, (1, 0, 1))}, "normalize: std: got .* other than 0"),
        ({"image_size": 8, "dtype": "float16", "normalize": (0.5, 0.5)}, "normalize: "),
        ({"decode": NORMALIZED, "dtype": "float16", "normalize": (MEAN, STD)}, "normalize: .* Normalize as well: give one"),
        ({"decode": DECODES["grey"], "dtype": "float16", "normalize": (MEAN, STD)}, "normalize: .* grey has one channel"),
    ],
)
def test_what_makes_no_floats_is_refused_by_name_with_what_to_do(
    dataset: packed.Packed, options: dict[str, Any], text: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        loader(dataset, "refused", **options)
