"""`decode="none"`: each image in its own size as PIL opens it, without a copy; and bad images."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import packed
import pytest
import torch
from PIL import Image
from shade_load import Batch, Daemon, Loader, Plan, RecordError, ShadeError

# The most that JPEG and lossy WebP may differ between builds of their decoders. Others are equal.
STEP = {".jpg": 1, ".webp": 1}
ORIENTATION = 0x0112


def noise(seed: int, size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    """An image so soft that every JPEG keeps it."""
    small = Image.frombytes("RGB", (4, 3), random.Random(seed).randbytes(36))
    return small.resize(size, Image.Resampling.BICUBIC).convert(mode)


def turned(by: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = by
    return exif


def save_images(folder: Path) -> None:
    """Images of every kind, of two classes, no two of one size."""
    (folder / "photo").mkdir(parents=True)
    (folder / "art").mkdir()
    photo = {
        "baseline.jpg": ("RGB", {"quality": 90}),
        "progressive.jpg": ("RGB", {"quality": 85, "progressive": True}),
        "full.jpg": ("RGB", {"quality": 95, "subsampling": 0}),
        "turned.jpg": ("RGB", {"quality": 90, "exif": turned(6)}),
        "grey.jpg": ("L", {"quality": 90}),
        "cmyk.jpg": ("CMYK", {"quality": 90}),
        "lossy.webp": ("RGB", {"quality": 90}),
        "lossless.webp": ("RGB", {"lossless": True}),
    }
    art = {
        "plain.png": ("RGB", {}),
        "grey.png": ("L", {}),
        "bits.png": ("1", {}),
        "palette.png": ("P", {}),
        "alpha.png": ("RGBA", {}),
        "pixels.ppm": ("RGB", {}),
        "bitmap.bmp": ("RGB", {}),
        "page.tiff": ("RGB", {}),
        # Pillow turns a TIFF while it loads it.
        "turned.tiff": ("RGB", {"exif": turned(8)}),
    }
    for number, (name, (mode, options)) in enumerate(photo.items()):
        noise(number, (300 + 17 * number, 200 - 11 * number), mode).save(folder / "photo" / name, **options)
    for number, (name, (mode, options)) in enumerate(art.items()):
        noise(number, (31 + number, 90 - 7 * number), mode).save(folder / "art" / name, **options)
    noise(1, (1, 1)).save(folder / "art" / "dot.png")
    noise(2, (700, 3)).save(folder / "art" / "line.png")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    folder = tmp_path_factory.mktemp("kinds")
    save_images(folder / "images")
    return packed.pack(folder / "images", folder / "data.shade")


def pil(dataset: packed.Packed, sample: int) -> torch.Tensor:
    """3 x height x width."""
    with Image.open(dataset.files[sample]) as image:
        return torch.from_numpy(numpy.array(image.convert("RGB"))).permute(2, 0, 1)


def check(dataset: packed.Packed, batch: Batch) -> None:
    """Every image of the batch is PIL's, and the columns say its size."""
    assert isinstance(batch.images, list) and len(batch.images) == len(batch)
    assert batch.heights.tolist() == [image.shape[1] for image in batch.images]
    assert batch.widths.tolist() == [image.shape[2] for image in batch.images]
    for sample, label, image in zip(batch.ids.tolist(), batch.labels.tolist(), batch.images, strict=True):
        expected, name = pil(dataset, sample), dataset.files[sample].name
        assert image.dtype == torch.uint8 and image.shape == expected.shape, name
        assert (image.int() - expected.int()).abs().max() <= STEP.get(Path(name).suffix, 0), name
        assert label == dataset.labels[sample]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_images_of_every_kind_are_pils(kinds: packed.Packed, channels_last: bool, exact: bool) -> None:
    options: dict[str, Any] = {"channels_last": channels_last, "exact": exact, "plan": Plan(sampler="uniform")}
    daemon = Daemon(job=f"kinds-{channels_last}-{exact}")
    with Loader(kinds.path, 4, decode="none", daemon=daemon, **options) as loader:
        seen = []
        for _ in range(2):
            for batch in loader:
                check(kinds, batch)
                seen += batch.ids.tolist()
                # Planes to torch as for framed images, with the memory format that was asked for.
                in_memory = [image.permute(1, 2, 0) if channels_last else image for image in batch.images]
                assert all(image.is_contiguous() for image in in_memory)
    assert sorted(seen) == sorted(2 * list(range(len(kinds))))


@pytest.mark.parametrize("channels_last", [False, True])
def test_without_torch_images_are_views_as_they_lie(kinds: packed.Packed, channels_last: bool) -> None:
    with Loader(
        kinds.path, 4, decode="none", channels_last=channels_last, daemon=Daemon(job=f"views-{channels_last}")
    ) as loader:
        native = next(iter(loader))._native
        batch = Batch(native, None, loader._fields, None, None)
        for sample, height, width, view in zip(
            batch.ids.tolist(), batch.heights.tolist(), batch.widths.tolist(), batch.images, strict=True
        ):
            expected = pil(kinds, sample)
            assert (height, width) == expected.shape[1:]
            array = torch.from_numpy(numpy.from_dlpack(view))
            if channels_last:
                array = array.permute(2, 0, 1)
            assert array.shape == expected.shape and (array.int() - expected.int()).abs().max() <= 1


def test_images_lie_in_the_ring_and_keep_their_place(kinds: packed.Packed) -> None:
    with Loader(
        kinds.path, 4, decode="none", plan=Plan(sampler="uniform"), daemon=Daemon(ring=1, job="kept")
    ) as loader:
        batches = iter(loader)
        batch = next(batches)
        assert batch.images is batch.images
        sample, image = batch.ids.tolist()[2], batch.images[2]
        again = torch.from_dlpack(batch._native.image(2))
        assert again.data_ptr() == image.data_ptr()
        corner, part = image[0, 0, 0].item(), image[:, :1]
        image[0, 0, 0] = 255 - corner
        assert again[0, 0, 0] == 255 - corner, "no copy"
        image[0, 0, 0] = corner
        del batch, image, again
        assert loader._session.held == 1, "a part of an image lost its memory"
        # In the smallest ring, whose other places are used again and again.
        for _ in range(8):
            for batch in batches:
                check(kinds, batch)
            del batch
            assert (part.int() - pil(kinds, sample)[:, :1].int()).abs().max() <= 1
            batches = iter(loader)
        del part
        assert loader._session.held == 0


def test_transform_gets_the_list(kinds: packed.Packed) -> None:
    def smallest(images: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([image[:, :1, :1] for image in images])

    with Loader(kinds.path, 4, decode="none", transform=smallest, daemon=Daemon(job="transformed")) as loader:
        batch = next(iter(loader))
        assert batch.images.shape == (4, 3, 1, 1)
        assert batch.heights.shape == (4,), "the sizes are still those of the images"


def collected(batches: Any) -> dict[int, torch.Tensor]:
    """Every image of the batches by sample."""
    return {
        sample: image.clone()
        for batch in batches
        for sample, image in zip(batch.ids.tolist(), batch.images, strict=True)
    }


def test_ranks_interruptions_and_validation_deliver_the_same(kinds: packed.Packed) -> None:
    def loader(job: str, workers: int | None = None, **options: Any) -> Loader:
        daemon = Daemon(job=job, workers=workers)
        return Loader(kinds.path, 3, decode="none", seed=7, daemon=daemon, **options)

    uniform = Plan(sampler="uniform")
    with loader("one", workers=1, plan=uniform) as one:
        expected = collected(one)
    with loader("ranks", plan=uniform, rank=0, world_size=2) as first:
        with loader("ranks", plan=uniform, rank=1, world_size=2) as second:
            halves = {}
            for pair in zip(first, second, strict=True):
                halves.update(collected(pair))
    with loader("saved", plan=uniform) as saved:
        batches = iter(saved)
        begun = collected([next(batches), next(batches)])
        state = saved.state_dict()
    with loader("resumed", plan=uniform) as resumed:
        resumed.load_state_dict(state)
        rest = collected(resumed)
    with loader("validated", train=False) as validation:
        in_order = collected(validation)
    assert list(in_order) == list(range(len(kinds)))
    assert not begun.keys() & rest.keys()
    for found in (halves, {**begun, **rest}, in_order):
        assert found.keys() == expected.keys() == set(range(len(kinds)))
        assert all(torch.equal(image, expected[sample]) for sample, image in found.items())


def test_a_short_last_batch_and_a_filled_up_one(kinds: packed.Packed) -> None:
    for tail, sizes in (("even", [8, 8, 3]), ("pad", [8, 8, 8])):
        with Loader(
            kinds.path, 8, decode="none", plan=Plan(sampler="uniform", tail=tail), daemon=Daemon(job=f"tail-{tail}")
        ) as loader:
            batches = list(loader)
        assert [len(batch) for batch in batches] == sizes
        for batch in batches:
            check(kinds, batch)
        assert sum(int(batch.padding.sum()) for batch in batches) == sum(sizes) - len(kinds)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """A damaged record, a file that is no image, and one of unknown size."""
    folder = tmp_path_factory.mktemp("damaged")
    for label, name in enumerate(("ant", "bee")):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(12):
            size = (20 + (7 * number) % 12, 30 + label)
            noise(number, size).save(folder / "images" / name / f"{number:02}.png")
    (folder / "images" / "ant" / "03.png").write_bytes(b"no image, whatever its name says" * 9)
    noise(5, (25, 25)).save(folder / "images" / "bee" / "02.tiff", big_tiff=True)
    dataset = packed.pack(folder / "images", folder / "data.shade")
    shard, offset, length = dataset.stored(9)
    with shard.open("r+b") as file:
        file.seek(offset + length // 2)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    return dataset


def bad_ones(damaged: packed.Packed) -> set[int]:
    names = [str(file.relative_to(damaged.folder)) for file in damaged.files]
    return {9, names.index("ant/03.png"), names.index("bee/02.tiff")}


def test_raise_names_the_first_bad_image(damaged: packed.Packed) -> None:
    with Loader(damaged.path, 4, decode="none", train=False, daemon=Daemon(job="raises")) as loader:
        delivered = []
        with pytest.raises(RecordError, match=r"sample 3 \(ant/03.png\) .*--format jpeg or raw"):
            for batch in loader:
                delivered += batch.ids.tolist()
    assert delivered == []


def test_skip_leaves_bad_images_out(damaged: packed.Packed) -> None:
    with Loader(
        damaged.path, 5, decode="none", plan=Plan(sampler="uniform", on_error="skip"), daemon=Daemon(job="skips")
    ) as loader:
        seen: list[int] = []
        skipped = 0
        for batch in loader:
            check(damaged, batch)
            seen += batch.ids.tolist()
            skipped += batch.skipped
    bad = bad_ones(damaged)
    assert skipped == len(bad) == 3
    assert sorted([*seen, *bad]) == list(range(len(damaged)))


def test_substitute_takes_one_of_the_class_that_fits(damaged: packed.Packed) -> None:
    plan = Plan(sampler="uniform", on_error="substitute")
    with Loader(damaged.path, 5, decode="none", plan=plan, daemon=Daemon(job="substitutes")) as loader:
        seen: list[int] = []
        substitutes = []
        for batch in loader:
            check(damaged, batch)
            flags = (batch.flags & 1).tolist()
            seen += batch.ids.tolist()
            substitutes += [sample for sample, flag in zip(batch.ids.tolist(), flags, strict=True) if flag]
    bad = bad_ones(damaged)
    assert len(seen) == len(damaged)
    assert sorted({*seen, *bad}) == list(range(len(damaged))) and not bad & set(seen)
    assert sorted(damaged.labels[sample] for sample in substitutes) == sorted(damaged.labels[s] for s in bad)


def test_a_dataset_without_sizes_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "files" / "all").mkdir(parents=True)
    for number in range(4):
        (tmp_path / "files" / "all" / f"{number}.png").write_bytes(b"no image")
    dataset = packed.pack(tmp_path / "files", tmp_path / "data.shade")
    with pytest.raises(ShadeError, match=r"size of none of its 4 samples.*--format jpeg or raw"):
        Loader(dataset.path, 2, decode="none", plan=Plan(on_error="skip"))


@pytest.mark.parametrize("column", [lambda batch: batch.heights, lambda batch: batch.widths])
def test_only_ragged_batches_have_sizes(kinds: packed.Packed, column: Callable[[Batch], Any]) -> None:
    for job, options in (("raw", {}), ("framed", {"image_size": 8})):
        with Loader(kinds.path, 4, daemon=Daemon(job=job), **options) as loader:
            with pytest.raises(AttributeError, match='decode="none"'):
                column(next(iter(loader)))
    with Loader(kinds.path, 4, decode="none", daemon=Daemon(job="ragged")) as loader:
        with pytest.raises(AttributeError, match=r"batch\.images"):
            next(iter(loader)).records
