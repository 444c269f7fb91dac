"""Recipes as scripts have them, up to ToTensor and Normalize, are given to `decode` as they stand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import documents
import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, Normalize, Plan
from shade_load import transforms as ours
from shade_load.recipe import recipe
from torchvision import transforms as tv
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 24
BICUBIC = tv.InterpolationMode.BICUBIC
TO_FLOATS = v2.ToDtype(torch.float32, scale=True)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "images" / "all").mkdir(parents=True)
    source = random.Random(3)
    for number in range(10):
        image = Image.frombytes("RGB", (7, 5), source.randbytes(105)).resize((40, 32), Image.Resampling.BICUBIC)
        image.save(folder / "images" / "all" / f"{number}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def delivered(dataset: packed.Packed, **options: Any) -> dict[int, torch.Tensor]:
    """The images of each sample."""
    found = {}
    with Loader(dataset.path, 4, plan=Plan(sampler="uniform"), daemon=Daemon(job="recipe"), **options) as loader:
        for batch in loader:
            found.update(zip(batch.ids.tolist(), batch.images.clone(), strict=True))
    assert len(found) == len(dataset)
    return found


def pil(dataset: packed.Packed, sample: int) -> Image.Image:
    with Image.open(dataset.files[sample]) as image:
        return image.convert("RGB")


FIXED: dict[str, Any] = {
    "version 1": tv.Compose([tv.Resize(28, 3), tv.CenterCrop(SIDE), tv.ToTensor(), tv.Normalize(MEAN, STD)]),
    "within each other": tv.Compose(
        [tv.Compose([tv.Resize(28, 3), tv.CenterCrop(SIDE)]), tv.Compose([tv.ToTensor(), tv.Normalize([0.5], [0.5])])]
    ),
    "floats from 0 to 1": tv.Compose([tv.Resize((SIDE, 17), 3), tv.RandomHorizontalFlip(1.0), tv.ToTensor()]),
    "a crop of the whole": tv.Compose([tv.Resize((SIDE, SIDE), 3), tv.CenterCrop(SIDE), tv.ToTensor()]),
    "converted": tv.Compose([tv.CenterCrop(SIDE), tv.PILToTensor(), tv.ConvertImageDtype(torch.float32)]),
    "grey": tv.Compose([tv.CenterCrop(SIDE), tv.Grayscale(), tv.ToTensor(), tv.Normalize((0.1307,), (0.3081,))]),
    "numbers": tv.Compose([tv.CenterCrop(SIDE), tv.ToTensor(), tv.Normalize(0.5, 0.25)]),
    "numbers of no dimension": tv.Compose(
        [tv.CenterCrop(SIDE), tv.ToTensor(), tv.Normalize(torch.tensor(0.5), torch.tensor(0.25))]
    ),
    "grey in three channels": v2.Compose([v2.CenterCrop(SIDE), v2.Grayscale(), v2.RGB(), v2.ToImage()]),
    "grey before geometry": v2.Compose(
        [v2.Grayscale(), v2.Resize((SIDE, 17), BICUBIC), v2.RandomHorizontalFlip(1.0), v2.ToImage(), v2.RGB()]
    ),
    "grey floats in three channels": v2.Compose(
        [v2.CenterCrop(SIDE), v2.Grayscale(), v2.RGB(), v2.ToImage(), TO_FLOATS, v2.Normalize(MEAN, STD)]
    ),
    "version 2": v2.Compose(
        [v2.RGB(), v2.CenterCrop(SIDE), v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    ),
    "erased": tv.Compose(
        [tv.CenterCrop(SIDE), tv.ToTensor(), tv.RandomErasing(0.0), tv.Normalize(MEAN, STD), tv.RandomErasing(0.0)]
    ),
    "without a crop": tv.Compose([tv.ToTensor(), tv.Normalize(MEAN, STD)]),
    "flips alone": tv.Compose([tv.RandomHorizontalFlip(1.0), tv.RandomVerticalFlip(1.0), tv.ToTensor()]),
    "pixels alone": tv.Compose([tv.RandomInvert(1.0), tv.RandomHorizontalFlip(1.0), tv.ToTensor()]),
    "bytes": v2.Compose([v2.CenterCrop(SIDE), v2.PILToTensor(), v2.ToDtype(torch.uint8, scale=True)]),
}


@pytest.mark.parametrize("name", FIXED)
def test_images_are_those_of_a_dataloader(dataset: packed.Packed, name: str) -> None:
    for sample, image in delivered(dataset, decode=FIXED[name]).items():
        expected = FIXED[name](pil(dataset, sample))
        assert image.dtype == expected.dtype and image.shape == expected.shape
        # Division by 255 and multiplication by its inverse differ in the last bit.
        torch.testing.assert_close(image, expected, rtol=0.0, atol=1e-6)


def test_without_a_crop_images_of_several_sizes_are_named(tmp_path: Path) -> None:
    (tmp_path / "images" / "all").mkdir(parents=True)
    for number, size in enumerate([(6, 5), (6, 5), (5, 6)]):
        Image.new("RGB", size).save(tmp_path / "images" / "all" / f"{number}.png")
    dataset = packed.pack(tmp_path / "images", tmp_path / "data.shade")
    with pytest.raises(ValueError, match=r"no crop.*sample 0 has 6 x 5, sample 2 5 x 6\): add a crop, or give image_size"):
        Loader(dataset.path, 4, decode=tv.ToTensor())


def test_timms_recipes_are_taken(dataset: packed.Packed) -> None:
    factory = pytest.importorskip("timm.data.transforms_factory")
    evaluation = factory.transforms_imagenet_eval(SIDE, crop_pct=0.875, interpolation="bicubic")
    for sample, image in delivered(dataset, decode=evaluation).items():
        torch.testing.assert_close(image, evaluation(pil(dataset, sample)), rtol=0.0, atol=1e-5)
    to_numpy = pytest.importorskip("timm.data.transforms").ToNumpy()
    for sample, image in delivered(dataset, decode=[tv.CenterCrop(SIDE), to_numpy]).items():
        assert image.numpy().tobytes() == to_numpy(tv.CenterCrop(SIDE)(pil(dataset, sample))).tobytes()
    train = factory.transforms_imagenet_train(
        SIDE, (1.0, 1.0), (1.25, 1.25), hflip=1.0, color_jitter=None, interpolation="lanczos", re_prob=1.0, re_mode="const"
    )
    for sample, image in delivered(dataset, decode=train).items():
        wanted = torch.zeros_like(image)
        image, expected = image.clone(), tv.Compose(train.transforms[:-1])(pil(dataset, sample))
        is_erased = (image == 0).all(0)
        assert 0 < is_erased.sum() < is_erased.numel() // 2
        torch.testing.assert_close(
            torch.where(is_erased, wanted, image), torch.where(is_erased, wanted, expected), rtol=0.0, atol=1e-5
        )
    jittered = factory.transforms_imagenet_train(SIDE, interpolation="bicubic", re_prob=0.5, re_mode="pixel")
    assert len(delivered(dataset, decode=jittered)) == len(dataset)
    either = factory.transforms_imagenet_train(SIDE, interpolation="random").transforms[:1]
    assert documents.view(either)[0]["RandomResizedCrop"]["interpolation"] == ["bilinear", "bicubic"]


def test_several_views_and_a_function_behind_them(dataset: packed.Packed) -> None:
    ends = [tv.ToTensor(), tv.Normalize(MEAN, STD)]
    views = [tv.Compose([tv.CenterCrop(SIDE), *ends]), tv.Compose([tv.Resize((8, 9), 3), *ends])]
    options: dict[str, Any] = {"decode": [list(view.transforms) for view in views], "transform": lambda images: 2 * images}
    with Loader(dataset.path, 4, plan=Plan(sampler="uniform"), daemon=Daemon(job="views"), **options) as loader:
        for batch in loader:
            for images, view in zip(batch.images, views, strict=True):
                expected = torch.stack([2 * view(pil(dataset, sample)) for sample in batch.ids.tolist()])
                torch.testing.assert_close(images, expected, rtol=0.0, atol=1e-5)


def test_what_is_erased_is_the_level_that_becomes_the_value() -> None:
    erasing = tv.RandomErasing(0.25, (0.1, 0.2), (1, 2), value=0)
    for behind, value in [
        ([tv.ToTensor(), tv.Normalize(MEAN, STD), erasing], (124, 116, 104)),
        ([tv.ToTensor(), tv.Normalize((0.5,), (0.5,)), erasing], 128),
        ([tv.ToTensor(), erasing, tv.Normalize(MEAN, STD)], 0),
        ([tv.ToTensor(), tv.Normalize((0.5,), (0.5,)), v2.RandomErasing(0.25, (0.1, 0.2), (1, 2), value=[1.0, -1.0, 0.5])], (255, 0, 191)),
    ]:  # fmt: skip
        decode, transform = recipe([ours.CenterCrop(SIDE), *behind], None)
        assert documents.views(decode) == documents.views(
            [ours.CenterCrop(SIDE), ours.RandomErasing(0.25, (0.1, 0.2), (1, 2), value)]
        )
        assert isinstance(transform, Normalize)


def test_a_crop_of_another_size_than_the_whole_stays() -> None:
    for steps in ([ours.Resize((28, 28)), ours.CenterCrop(SIDE)], [tv.Resize((28, 24)), tv.CenterCrop((24, 28))]):
        with pytest.raises(ValueError, match=r"got Resize\(\(28, 2[48]\)\) before CenterCrop, but it stretches"):
            documents.views(steps)
    view = [ours.Resize((28, 24)), ours.CenterCrop((28, 24)), ours.RandomInvert()]
    assert documents.views([view, view]) == documents.views([view[::2]]) * 2


def test_what_has_nothing_to_take_off_stays() -> None:
    steps = [tv.CenterCrop(SIDE), tv.RandomInvert()]
    for decode in (None, "none", steps, tv.Compose(steps), [steps, steps], ours.CenterCrop(SIDE)):
        taken, transform = recipe(decode, str)
        assert taken is decode and transform is str


@pytest.mark.parametrize(
    ("behind", "error", "text"),
    [
        ([tv.Normalize(MEAN, STD)], TypeError, "Normalize without ToTensor before it"),
        ([tv.ToTensor(), tv.ColorJitter(0.5)], TypeError, "got ColorJitter behind ToTensor, .* put it before ToTensor"),
        ([tv.ToTensor(), tv.CenterCrop(SIDE)], TypeError, "got CenterCrop behind ToTensor: for several views .* a list of lists"),
        ([tv.ToTensor(), v2.GaussianNoise()], TypeError, "got GaussianNoise behind ToTensor"),
        ([tv.ToTensor(), tv.Lambda(lambda image: image)], TypeError, "got Lambda behind ToTensor"),
        ([TO_FLOATS, v2.ToImage()], TypeError, "got ToImage .* put ToImage before ToDtype"),
        ([v2.ConvertImageDtype(torch.float32), v2.PILToTensor()], TypeError, "put PILToTensor before ToDtype"),
        ([tv.ToTensor(), tv.Normalize(None, 0.5)], TypeError, "decode: Normalize: got mean=None, expected a number"),
        ([v2.ToDtype(torch.float32)], ValueError, "expected float32 with scale=True"),
        ([v2.ToDtype(torch.float16, scale=True)], ValueError, "expected float32 with scale=True"),
        ([v2.ToDtype({torch.Tensor: torch.float32}, scale=True)], ValueError, "expected float32 with scale=True"),
        ([tv.ToTensor(), tv.Normalize(MEAN, STD), tv.Normalize(MEAN, STD)], ValueError, "Normalize twice"),
        ([tv.ToTensor(), tv.RandomErasing(value="random")], ValueError, 'value="random", but the daemon erases bytes'),
        ([tv.ToTensor(), tv.RandomErasing(value=1.5)], ValueError, "value=1.5, which no level"),
        ([Normalize(MEAN, STD)], TypeError, r"give it as Loader\(transform=...\)"),
        ([tv.ToTensor(), tv.Normalize(MEAN[:2], STD[:2])], ValueError, "mean: got .* or one"),
        ([tv.ToTensor(), tv.Normalize(MEAN, (1, 0, 1))], ValueError, "std: got"),
    ],
)
def test_what_cannot_be_done_to_bytes_or_a_batch_is_refused_by_name(behind: list[Any], error: Any, text: str) -> None:
    for steps in ([tv.CenterCrop(SIDE), *behind], tv.Compose([tv.CenterCrop(SIDE), tv.Compose(behind)])):
        with pytest.raises(error, match=text):
            recipe(steps, None)


def test_timms_erasing_is_last_and_erases_in_all_rows() -> None:
    erasing = pytest.importorskip("timm.data.random_erasing").RandomErasing
    last = erasing(1.0, mode="const", device="cpu")
    grey = [tv.CenterCrop(SIDE), tv.Grayscale(), tv.ToTensor()]
    refused: list[tuple[list[Any], type[Exception], str]] = [
        ([tv.CenterCrop(SIDE), tv.ToTensor(), last, tv.Normalize(MEAN, STD)], TypeError, "got Normalize behind .* last"),
        ([tv.CenterCrop(SIDE), tv.ToTensor(), last, tv.RandomErasing()], TypeError, "put timm's RandomErasing last"),
        ([*grey, last, v2.RGB()], TypeError, "got RGB behind timm's RandomErasing"),
        ([*grey, erasing(1.0, num_splits=2, device="cpu")], ValueError, "num_splits=2, which spares the first rows"),
    ]
    for steps, error, text in refused:
        with pytest.raises(error, match=text):
            recipe(steps, None)
    assert recipe([*grey, v2.RGB(), last], None)[0] == [grey[0], ours.Grayscale(3)]
    assert recipe([*grey, erasing(1.0, num_splits=1, device="cpu")], None)[0] == grey[:2]


@pytest.mark.parametrize("resize", [v2.Resize, v2.RandomResizedCrop])
@pytest.mark.parametrize("to_tensor", [v2.ToImage, v2.PILToTensor])
def test_a_tensor_that_is_not_smoothed_is_refused(resize: Any, to_tensor: Any) -> None:
    side = (SIDE, SIDE)
    for antialias in (None, "warn"):
        with pytest.raises(ValueError, match=r"got antialias=.* behind ToImage or PILToTensor"):
            recipe([to_tensor(), resize(side, antialias=antialias), TO_FLOATS], None)
        recipe([resize(side, antialias=antialias), to_tensor(), TO_FLOATS], None)
    recipe([to_tensor(), resize(side), TO_FLOATS], None)


def test_rgb_does_not_follow_a_class_that_may_do_anything() -> None:
    class Grayscale(v2.Grayscale):
        pass

    crop, step = tv.CenterCrop(SIDE), Grayscale()
    assert recipe([crop, step, v2.RGB()], None)[0] == [crop, step]
    with pytest.raises(TypeError, match="extends Grayscale and may do something else"):
        documents.views([crop, step])


def test_views_that_become_different_floats_are_refused() -> None:
    crop, floats = tv.CenterCrop(SIDE), tv.ToTensor()
    with pytest.raises(ValueError, match="view 1 ends in .*, and view 0 in"):
        recipe([[crop, floats, tv.Normalize(MEAN, STD)], [crop, floats]], None)


def test_grey_and_colours_have_as_many_numbers_as_they_need() -> None:
    bytes_ = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    expected = v2.Normalize([0.5], [0.25])(v2.ToDtype(torch.float32, scale=True)(bytes_))
    assert torch.equal(Normalize([0.5], [0.25])(bytes_), expected)
    colours = bytes_.expand(1, 3, 16, 16)
    assert torch.equal(Normalize([0.5], [0.25])(colours), expected.expand(1, 3, 16, 16))
    with pytest.raises(ValueError, match="got one channel, but mean="):
        Normalize(MEAN, STD)(bytes_)
