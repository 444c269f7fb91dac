"""Several views of each image, in colour or grey; and what each shows of its source, so that masks follow."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy
import packed
import pytest
import torch
from PIL import Image
from shade_load import Batch, Daemon, Loader, Plan, ShadeError
from shade_load.transforms import (
    CenterCrop,
    FiveCrop,
    Grayscale,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
)
from torchvision import transforms as tv
from torchvision.transforms import functional

BATCH = 5
# (width, height) of the images, in turn.
SIZES = [(90, 60), (50, 71), (64, 64)]
# A square that is white in every image, and the mask's only part: left, top, side.
SQUARE = (18, 22, 20)
FLIP = RandomHorizontalFlip()
# Every framing, with its row's height and width.
FRAMINGS: dict[str, tuple[list[Any], tuple[int, int]]] = {
    "cover": ([], (40, 30)),
    "stretch": ([Resize((24, 70)), FLIP], (24, 70)),
    "center": ([Resize(48), CenterCrop((40, 32)), FLIP], (40, 32)),
    "padded": ([CenterCrop((80, 100)), FLIP], (80, 100)),
    "random": ([RandomCrop((56, 60), padding=8), FLIP], (56, 60)),
    "resized-random": ([Resize(40), RandomCrop(36, padding=3), FLIP], (36, 36)),
    "part": ([RandomResizedCrop((32, 24)), FLIP], (32, 24)),
}


def picture(number: int) -> Image.Image:
    """Dark soft blots, and a white square."""
    source = random.Random(number)
    blots = Image.frombytes("RGB", (9, 6), bytes(source.randrange(90) for _ in range(9 * 6 * 3)))
    image = blots.resize(SIZES[number % len(SIZES)], Image.Resampling.BICUBIC)
    left, top, side = SQUARE
    image.paste((255, 255, 255), (left, top, left + side, top + side))
    return image


@pytest.fixture(scope="module")
def pngs(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    return pictures(tmp_path_factory.mktemp("pngs"), "png")


@pytest.fixture(scope="module")
def jpegs(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    return pictures(tmp_path_factory.mktemp("jpegs"), "jpg")


def pictures(root: Path, form: str) -> packed.Packed:
    (root / "images" / "all").mkdir(parents=True)
    for number in range(18):
        picture(number).save(root / "images" / "all" / f"{number:02}.{form}")
    return packed.pack(root / "images", root / "data.shade")


def loader(dataset: packed.Packed, job: str, **options: Any) -> Loader:
    plan = options.pop("plan", Plan(sampler="uniform"))
    return Loader(dataset.path, BATCH, plan=plan, seed=7, daemon=Daemon(job=job), **options)


def source(dataset: packed.Packed, sample: int) -> Image.Image:
    with Image.open(dataset.files[sample]) as image:
        return image.convert("RGB")


def follow(image: Image.Image, crop: torch.Tensor, flipped: torch.Tensor, size: tuple[int, int], whole: bool) -> Image.Image:
    """What `crop` and `flipped` of a batch make of an image: torchvision's functions, nothing of ours."""
    left, top, width, height = crop.tolist()
    if whole:
        assert [left, top, width, height] == [round(side) for side in (left, top, width, height)]
        row = functional.resized_crop(image, int(top), int(left), int(height), int(width), list(size))
    else:
        # The whole image is resized as the part is, and then cropped.
        down, across = size[0] / height, size[1] / width
        resized = functional.resize(image, [round(image.height * down), round(image.width * across)])
        row = functional.crop(resized, round(top * down), round(left * across), *size)
    return functional.hflip(row) if flipped else row


@pytest.mark.parametrize("name", FRAMINGS)
def test_the_crop_and_the_flip_make_the_row_of_its_source(pngs: packed.Packed, name: str) -> None:
    steps, size = FRAMINGS[name]
    wanted: dict[str, Any] = {"decode": steps} if steps else {"image_size": size}
    flips = set()
    with loader(pngs, name, exact=True, **wanted) as loading:
        for batch in loading:
            assert batch.crops.shape == (len(batch), 4) and batch.crops.dtype == torch.float32
            assert batch.flipped.shape == (len(batch),) and batch.flipped.dtype == torch.bool
            for row, sample in enumerate(batch.ids.tolist()):
                image = source(pngs, sample)
                expected = follow(image, batch.crops[row], batch.flipped[row], size, name == "part")
                found = batch.images[row].int() - functional.pil_to_tensor(expected).int()
                # One rounds once, the other after each direction.
                assert found.abs().max() <= 1, (name, sample, batch.crops[row])
                flips.add(bool(batch.flipped[row]))
                if name in ("padded", "random"):
                    left, top, width, height = batch.crops[row].tolist()
                    assert (width, height) == size[::-1]
                if name == "padded":
                    assert (left, top) == (-((size[1] - image.width) // 2), -((size[0] - image.height) // 2))
    assert flips == ({False, True} if steps else {False})


def test_a_mask_that_follows_the_crop_covers_what_the_image_shows(pngs: packed.Packed) -> None:
    left, top, side = SQUARE
    seen = 0
    with loader(pngs, "masks", decode=[RandomResizedCrop(64), FLIP]) as loading:
        for batch in loading:
            for row, sample in enumerate(batch.ids.tolist()):
                mask = Image.new("L", source(pngs, sample).size)
                mask.paste(255, (left, top, left + side, top + side))
                followed = follow(mask, batch.crops[row], batch.flipped[row], (64, 64), True)
                covered = functional.pil_to_tensor(followed)[0] > 127
                white = batch.images[row].float().mean(0) > 150
                assert (covered != white).float().mean() < 0.02, sample
                seen += bool(covered.any())
    assert seen >= 9, "most crops show a part of the square"


GLOBAL = [RandomResizedCrop(32, scale=(0.4, 1.0)), FLIP]
LOCAL = [RandomResizedCrop((12, 16), scale=(0.05, 0.4)), FLIP]


def rows(batch: Batch, view: int) -> dict[int, tuple[torch.Tensor, ...]]:
    """Image, crop and flip of a view, by sample."""
    images, crops, flipped = batch.images[view], batch.crops[view], batch.flipped[view]
    return {
        sample: (images[row].clone(), crops[row].clone(), flipped[row].clone())
        for row, sample in enumerate(batch.ids.tolist())
    }


@pytest.mark.parametrize("kind", ["pngs", "jpegs"])
def test_each_view_has_its_own_crop_and_all_come_from_one_decoding(request: pytest.FixtureRequest, kind: str) -> None:
    dataset = request.getfixturevalue(kind)
    options: dict[str, Any] = {"exact": True}
    with (
        loader(dataset, "views", decode=[GLOBAL, GLOBAL, LOCAL], **options) as several,
        loader(dataset, "alone", decode=GLOBAL, **options) as alone,
    ):
        for batch, single in zip(several, alone, strict=True):
            assert [tuple(view.shape[1:]) for view in batch.images] == [(3, 32, 32), (3, 32, 32), (3, 12, 16)]
            assert batch.ids.tolist() == single.ids.tolist() and len(batch.labels) == len(batch)
            assert torch.equal(batch.images[0], single.images), "the first view is the single one"
            assert torch.equal(batch.crops[0], single.crops) and torch.equal(batch.flipped[0], single.flipped)
            assert not torch.equal(batch.crops[0], batch.crops[1])
            for view, size in enumerate([(32, 32), (32, 32), (12, 16)]):
                for sample, (image, crop, flipped) in rows(batch, view).items():
                    expected = follow(source(dataset, sample), crop, flipped, size, True)
                    found = image.int() - functional.pil_to_tensor(expected).int()
                    # A JPEG may be a step off before it is resized as well.
                    assert found.abs().max() <= 2 and found.abs().float().mean() < 0.3
        figures = several.stats()
    assert figures["total"]["delivered"] == len(dataset)


def test_views_do_not_depend_on_workers_or_interruptions(pngs: packed.Packed, tmp_path: Path) -> None:
    views = [GLOBAL, LOCAL]

    def epoch(loading: Loader) -> dict[tuple[int, int], tuple[torch.Tensor, ...]]:
        found = {}
        for batch in loading:
            for view in range(2):
                found.update({(view, sample): row for sample, row in rows(batch, view).items()})
        return found

    with loader(pngs, "whole", decode=views) as whole:
        expected = epoch(whole)
    daemon = Daemon(socket=tmp_path / "s", workers=1)
    with Loader(pngs.path, BATCH, plan=Plan(sampler="uniform"), seed=7, daemon=daemon, decode=views) as saved:
        batches = iter(saved)
        first = next(batches)
        found = {(view, sample): row for view in range(2) for sample, row in rows(first, view).items()}
        state = saved.state_dict()
        del first
    with loader(pngs, "resumed", decode=views) as resumed:
        resumed.load_state_dict(state)
        found.update(epoch(resumed))
    assert found.keys() == expected.keys() and len(found) == 2 * len(pngs)
    assert all(torch.equal(a, b) for key in expected for a, b in zip(found[key], expected[key], strict=True))


def test_trainings_of_a_group_decode_all_views_once(pngs: packed.Packed) -> None:
    with (
        loader(pngs, "first", decode=[GLOBAL, LOCAL], plan=Plan(group="sweep")) as first,
        loader(pngs, "second", decode=[GLOBAL, LOCAL], plan=Plan(group="sweep")) as second,
    ):
        for batch, other in zip(first, second, strict=True):
            for name in ("images", "crops", "flipped"):
                assert all(torch.equal(a, b) for a, b in zip(batch[name], other[name], strict=True)), name
        copied = sum(job["copied"] for job in first.stats()["jobs"])
    # The next epoch may be filled already.
    assert copied in range(len(pngs), 2 * len(pngs) + 1), "each row was decoded for one of the two"


@pytest.mark.parametrize("channels_last", [False, True])
def test_grey_is_pillows_of_the_colours(pngs: packed.Packed, channels_last: bool) -> None:
    options: dict[str, Any] = {"channels_last": channels_last, "exact": True}
    colours = [RandomResizedCrop(24), FLIP]
    with (
        loader(pngs, f"colours-{channels_last}", decode=colours, **options) as coloured,
        loader(pngs, f"grey-{channels_last}", decode=[*colours, tv.Grayscale()], **options) as grey,
    ):
        for batch, expected in zip(grey, coloured, strict=True):
            assert batch.images.shape == (len(batch), 1, 24, 24) and batch.images.dtype == torch.uint8
            for image, of_colours in zip(batch.images, expected.images, strict=True):
                pillows = functional.to_pil_image(of_colours).convert("L")
                assert torch.equal(image, functional.pil_to_tensor(pillows))


def test_grey_is_torchvisions_grayscale(pngs: packed.Packed) -> None:
    steps = [tv.Resize(40), tv.CenterCrop(36), tv.Grayscale(), tv.RandomHorizontalFlip(1.0)]
    with loader(pngs, "torchvision", decode=tv.Compose(steps), exact=True) as loading:
        for batch in loading:
            for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
                expected = functional.pil_to_tensor(tv.Compose(steps)(source(pngs, sample)))
                assert (image.int() - expected.int()).abs().max() <= 1


def test_every_view_is_transformed_moved_and_named(pngs: packed.Packed) -> None:
    def scaled(images: torch.Tensor) -> torch.Tensor:
        return images.float() / 255

    views = [GLOBAL, [*LOCAL, Grayscale()]]
    with loader(pngs, "scaled", decode=views, transform=scaled) as loading:
        batch = next(iter(loading))
        assert [view.dtype for view in batch.images] == [torch.float32] * 2
        assert [view.shape[1] for view in batch.images] == [3, 1]
        images, labels = batch
        assert images is batch.images and labels is batch.labels
        assert batch.keys() == ("images", "labels", "ids", "weights", "flags", "crops", "flipped", "flipped_down")
        assert dict(batch)["crops"] is batch.crops and "flipped" in batch
        moved = batch.to("cpu")
        assert all(torch.equal(a, b) for a, b in zip(moved.images, batch.images, strict=True))
    with loader(pngs, "one", decode=[GLOBAL, GLOBAL][:1]) as loading:
        batch = next(iter(loading))
        assert isinstance(batch.images, list) and len(batch.images) == len(batch.crops) == len(batch.flipped) == 1


def test_views_lie_in_the_ring_without_a_copy(pngs: packed.Packed) -> None:
    with loader(pngs, "in-place", decode=[GLOBAL, LOCAL], channels_last=True) as loading:
        batch = next(iter(loading))
        address, length = loading._session.payload
        native = batch._native
        bare = Batch(native, None, loading._fields, None, None, True)
        for view in range(2):
            for tensor in (batch.images[view], batch.crops[view], torch.from_dlpack(native.flipped(view))):
                assert address <= tensor.data_ptr() < address + length and tensor.data_ptr() % 64 == 0
            images = numpy.from_dlpack(bare.images[view])
            assert torch.equal(torch.from_numpy(images).movedim(-1, 1), batch.images[view])
            assert bare.crops[view].tolist() == batch.crops[view].flatten().tolist()
            assert bare.flipped[view] == batch.flipped[view].tolist()
        with pytest.raises(IndexError, match="view 2 of a batch of 2"):
            native.images(2)


@pytest.mark.parametrize("taken", [[FiveCrop((50, 40))], [Resize(64), FiveCrop((50, 40))], [tv.Resize(64), tv.FiveCrop((50, 40))]])
def test_five_crops_are_torchvisions_views(pngs: packed.Packed, taken: list[Any]) -> None:
    five = tv.FiveCrop((50, 40))
    expected = tv.Compose([tv.Resize(64), five]) if len(taken) == 2 else five
    whole = [CenterCrop(60)]
    options: dict[str, Any] = {"plan": Plan(sampler="uniform"), "exact": True}
    for decode, before in ((taken, 0), ([whole, taken], 1)):
        with Loader(pngs.path, BATCH, decode=decode, daemon=Daemon(job=f"five-{before}"), **options) as loader:
            seen = 0
            for batch in loader:
                assert len(batch.images) == len(batch.crops) == before + 5
                for row, sample in enumerate(batch.ids.tolist()):
                    with Image.open(pngs.files[sample]) as image:
                        crops = expected(image.convert("RGB"))
                    for view, crop in zip(batch.images[before:], crops, strict=True):
                        difference = (view[row].int() - functional.pil_to_tensor(crop).int()).abs().max()
                        assert difference <= len(taken) - 1
                    seen += 1
            assert seen == len(pngs)


def test_five_crops_of_an_image_that_is_too_small_are_an_error(pngs: packed.Packed) -> None:
    with pytest.raises(ShadeError, match="50 x 71"):
        with Loader(pngs.path, BATCH, decode=FiveCrop(60), plan=Plan(sampler="uniform")) as loader:
            list(loader)


def test_records_and_whole_images_have_no_crops(pngs: packed.Packed) -> None:
    for job, options in (("raw", {}), ("ragged", {"decode": "none"})):
        with loader(pngs, job, **options) as loading:
            batch = next(iter(loading))
            assert "crops" not in batch and "flipped" not in batch
            with pytest.raises(AttributeError, match="image_size or decode"):
                _ = batch.crops
            with pytest.raises(AttributeError, match="image_size or decode"):
                _ = batch.flipped
            with pytest.raises(ValueError, match="only images of one size"):
                batch._native.crops(0)


@pytest.mark.parametrize(
    ("decode", "message"),
    [
        ([GLOBAL, FLIP], r"decode: got RandomHorizontalFlip\(p=0.5\) beside a list"),
        ([GLOBAL] * 17, "decode: got 17 views, expected at most 16"),
        ([GLOBAL, [Pad(4)]], "view 1: decode: got"),
        ([[*LOCAL, Grayscale(4)]], "decode: Grayscale: num_output_channels is 4"),
        ([Pad(4), Grayscale()], "decode: got"),
    ],
)
def test_what_makes_no_views_is_said(pngs: packed.Packed, decode: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        loader(pngs, "wrong", decode=decode)


def test_views_that_fit_no_ring_are_refused(pngs: packed.Packed) -> None:
    with pytest.raises((ValueError, ShadeError), match="batch_size is 32768 of 16384 x 16384 and 16384 x 16384"):
        Loader(pngs.path, 32_768, decode=[[Resize((16_384, 16_384))]] * 2, daemon=Daemon(job="huge"))
