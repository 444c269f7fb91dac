"""Plan(bucket=[(height, width), ...]): each batch has images of one size, near to their own aspect ratio."""

import math
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import packed
import pytest
from PIL import Image
from shade_load import Daemon, Loader, PerSample, Plan, Sample, ShadeError, Writer, bucket_sizes
from shade_load.transforms import CenterCrop, RandomHorizontalFlip, RandomResizedCrop

torch = pytest.importorskip("torch")

SIZES = [(48, 24), (40, 32), (32, 32), (24, 40)]
CLASSES = {"ant": 20, "bee": 33, "cat": 44}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("buckets")
    source = random.Random(5)
    for name, count in CLASSES.items():
        (root / "folder" / name).mkdir(parents=True)
        for number in range(count):
            size = source.randint(20, 70), source.randint(20, 70)
            image = Image.frombytes("RGB", (3, 3), source.randbytes(27)).resize(size)
            image.save(root / "folder" / name / f"{number:03}.jpeg", quality=92)
    return packed.pack(root / "folder", root / "data.shade")


def nearest(dataset: packed.Packed, sample: int) -> tuple[int, int]:
    with Image.open(dataset.files[sample]) as image:
        width, height = image.size
    return min(SIZES, key=lambda size: abs(math.log(size[1] / size[0]) - math.log(width / height)))


def of_size(dataset: packed.Packed) -> dict[tuple[int, int], dict[int, Any]]:
    """By size and sample: the row that a Loader of that one size delivers."""
    rows: dict[tuple[int, int], dict[int, Any]] = {}
    for size in SIZES:
        with Loader(dataset.path, 50, image_size=size, train=False) as loader:
            rows[size] = {
                sample: image.clone() for batch in loader for sample, image in zip(batch.ids.tolist(), batch.images, strict=True)
            }
    return rows


@pytest.mark.parametrize("sampler", ["uniform", "pads", "echo", "infobatch"])
def test_ranks_are_given_images_of_one_size(dataset: packed.Packed, sampler: Any) -> None:
    rows, plan = of_size(dataset), Plan(bucket=SIZES[::-1], sampler=sampler)

    def run(rank: int) -> list[tuple[int, int, tuple[int, int], list[int]]]:
        batches = []
        with Loader(dataset.path, 5, plan=plan, rank=rank, world_size=2, daemon=Daemon(job=sampler)) as loader:
            for _ in range(3):
                for batch in loader:
                    ids, size = batch.ids.tolist(), tuple(batch.images.shape[-2:])
                    for sample, image in zip(ids, batch.images, strict=True):
                        assert torch.equal(image, rows[size][sample]), (sample, size)
                    batches.append((batch.epoch, batch.index, size, ids))
                    loader.report(batch, torch.linspace(0.1, 3, len(ids)))
        return batches

    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(run, range(2)))
    pure: Counter[bool] = Counter()
    for (epoch, index, size, ids), (of_epoch, at, other, others) in zip(*ranks, strict=True):
        assert (epoch, index, size) == (of_epoch, at, other)
        of_images = Counter(nearest(dataset, sample) for sample in ids + others)
        assert of_images[size] == max(of_images.values())
        pure[len(of_images) == 1] += 1
        if sampler == "uniform" and epoch == 0 and index == 0:
            assert pure[True] == 1
    # What is left of four buckets makes at most four batches of an epoch; repeats may make more.
    assert pure[True] >= pure[False] and {size for _, _, size, _ in ranks[0]} == set(SIZES), pure
    if sampler == "uniform":
        assert pure[False] <= 3 * len(SIZES)
        for epoch in range(3):
            had = [sample for rank in ranks for of_epoch, _, _, ids in rank if of_epoch == epoch for sample in ids]
            assert sorted(had) == list(range(len(dataset)))


def test_transforms_get_the_sizes(dataset: packed.Packed) -> None:
    decode = [RandomResizedCrop(9, scale=(0.3, 1)), RandomHorizontalFlip()]
    options: dict[str, Any] = {"plan": Plan(bucket=SIZES), "dtype": "float16", "channels_last": True}
    with Loader(dataset.path, 8, decode=decode, daemon=Daemon(job="crops"), **options) as loader:
        shapes = {tuple(batch.images.shape[1:]) for batch in loader if batch.images.dtype == torch.float16}
        assert shapes == {(3, *size) for size in SIZES}
        assert all(batch.images.is_contiguous(memory_format=torch.channels_last) for batch in loader)
    with Loader(dataset.path, 8, decode=[RandomHorizontalFlip()], daemon=Daemon(job="flips"), **options) as loader:
        assert {tuple(batch.images.shape[1:]) for batch in loader} == {(3, *size) for size in SIZES}


def test_images_of_their_own_sizes_come_beside_others_of_their_ratio(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 6, decode="none", plan=Plan(bucket=SIZES), daemon=Daemon(job="own")) as loader:
        mixed = 0
        for batch in loader:
            mixed += len({nearest(dataset, sample) for sample in batch.ids.tolist()}) > 1
        assert len(loader) == 17 and mixed <= len(SIZES)


def shape(sample: Sample) -> Any:
    return {"height": sample.image.shape[0], "width": sample.image.shape[1]}


def test_a_validation_and_functions_of_samples_have_the_sizes_too(dataset: packed.Packed) -> None:
    had = []
    with Loader(dataset.path, 8, plan=Plan(bucket=SIZES), train=False, transform=PerSample(shape, workers=1)) as loader:
        for batch in loader:
            rows, _ = batch
            [size] = set(zip(rows["height"].tolist(), rows["width"].tolist(), strict=True))
            assert size in SIZES
            had += batch.ids.tolist()
    assert sorted(had) == list(range(len(dataset)))


def mirrored(sample: Sample) -> Any:
    return sample.image[:, ::-1].copy()


def test_images_that_a_function_makes_have_the_size_of_their_batch(dataset: packed.Packed) -> None:
    arguments = {"seed": 3, "plan": Plan(bucket=SIZES), "channels_last": True}
    with (
        Loader(dataset.path, 8, **arguments) as plain,
        Loader(dataset.path, 8, transform=PerSample(mirrored, workers=2), **arguments) as loader,
    ):
        for _ in range(2):
            had = set()
            for batch, expected in zip(loader, plain, strict=True):
                assert batch.ids.tolist() == expected.ids.tolist()
                # The function has rows of pixels, so its results are channels last as they are.
                assert torch.equal(batch.images, expected.images.permute(0, 2, 3, 1).flip(2))
                had.add(tuple(batch.images.shape[1:3]))
            assert len(had) > 1


def test_masks_have_the_size_of_their_batch(tmp_path: Path) -> None:
    source = random.Random(3)
    with Writer(tmp_path / "data.shade", classes=["a"]) as writer:
        for number in range(40):
            size = (60, 30) if number % 3 else (30, 60)
            mask = Image.frombytes("L", size, source.randbytes(1800))
            writer.add(image=mask.convert("RGB"), label=0, mask=mask)
    sizes, fields = [(20, 40), (40, 20)], {"mask.png": "mask"}
    expected = {}
    for size in sizes:
        with Loader(tmp_path / "data.shade", 40, image_size=size, train=False, fields=fields) as loader:
            [batch] = loader
            expected[size] = batch["mask.png"].clone()
    with Loader(tmp_path / "data.shade", 6, plan=Plan(bucket=sizes), fields=fields) as loader:
        for batch in loader:
            assert torch.equal(batch["mask.png"], expected[tuple(batch.images.shape[-2:])][batch.ids])


def test_a_training_goes_on_with_the_same_batches(dataset: packed.Packed) -> None:
    def batches(loader: Loader) -> list[tuple[Any, ...]]:
        return [(batch.index, batch.images.shape, batch.ids.tolist(), batch.images.sum()) for batch in loader]

    options: dict[str, Any] = {"decode": [RandomResizedCrop(9)], "plan": Plan(bucket=SIZES)}
    with Loader(dataset.path, 8, daemon=Daemon(job="whole"), **options) as loader:
        whole, after = batches(loader), batches(loader)
    with Loader(dataset.path, 8, daemon=Daemon(job="broken"), **options) as loader:
        for batch in loader:
            if batch.index == 4:
                break
        state = loader.state_dict()
    with Loader(dataset.path, 8, daemon=Daemon(job="resumed"), **options) as loader:
        loader.load_state_dict(state)
        assert batches(loader) == whole[5:] and batches(loader) == after


@pytest.mark.parametrize(
    ("plan", "options", "expected"),
    [
        ({"pace": True}, {}, "bucket is given, but must be left out with pace"),
        ({"group": "sweep"}, {}, "bucket is given, but must be left out with a group"),
        ({"strata": 4}, {}, "strata is 4, but must be 1 with buckets"),
        ({}, {"decode": [CenterCrop(9)]}, r"got CenterCrop with Plan\(bucket=...\)"),
        ({}, {"decode": [[RandomResizedCrop(9)], [RandomResizedCrop(8)]]}, "with views of different sizes"),
        ({"bucket": [(8, 8), (9, 9)]}, {}, r"\[8, 8\] and \[9, 9\], which have one ratio"),
        ({"bucket": [(8, 20_000)]}, {}, "bucket: got 20000, expected 1 to 16384"),
        ({"bucket": "wide"}, {}, "bucket: got 'wide', expected heights and widths"),
        ({"bucket": [(8, 9, 10)]}, {}, r"bucket: got \(8, 9, 10\), expected"),
        ({}, {"batch_size": 32_768, "plan_of": [(16_000, 15_000)]}, "batch_size is 32768 of 16000 x 15000 pixels"),
    ],
)
def test_what_has_no_buckets_is_refused(dataset: packed.Packed, plan: Any, options: Any, expected: str) -> None:
    sizes = options.pop("plan_of", SIZES)
    with pytest.raises((ShadeError, ValueError, TypeError), match=expected):
        Loader(dataset.path, options.pop("batch_size", 4), plan=Plan(**{"bucket": sizes, **plan}), **options)


def test_a_mixture_has_no_buckets(dataset: packed.Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises((ShadeError, ValueError), match="bucket is given, but must be left out with a mixture"):
        Loader([(dataset.path, 1), (dataset.path, 1)], 4, plan=Plan(bucket=SIZES))


def test_sizes_of_about_one_number_of_pixels() -> None:
    assert bucket_sizes(512) == [(640, 384), (576, 448), (512, 512), (448, 576), (384, 640)]
    of_1024 = bucket_sizes(1024)
    assert (1216, 832) in of_1024 and (768, 1344) in of_1024 and len(of_1024) == 9
    for side, step, ratio in [(224, 14, 2), (100, 64, 4), (50, 1, 1), (16_384, 4096, 3)]:
        sizes = bucket_sizes(side, step, ratio)
        Plan(bucket=sizes)
        for height, width in sizes:
            assert height % step == width % step == 0 and height * width <= side * side
            assert max(height, width) <= ratio * min(height, width)
    with pytest.raises(ValueError, match="step: got 65, expected 1 to 64"):
        bucket_sizes(64, 65)
