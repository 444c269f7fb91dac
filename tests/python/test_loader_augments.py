"""Operations on pixels in the daemon are equal to torchvision's on PIL images, whatever was drawn."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import Any

import numpy as np
import documents
import packed
import pytest
import torch
from PIL import Image, ImageFilter
from shade_load import Daemon, Loader, Plan, ShadeError, transforms
from shade_load.transforms import (
    AugMix,
    CenterCrop,
    ColorJitter,
    ElasticTransform,
    GaussianBlur,
    Grayscale,
    PillowGaussianBlur,
    RandAugment,
    RandomApply,
    RandomChoice,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomOrder,
    RandomPerspective,
    RandomResizedCrop,
    RandomSolarize,
    RandomVerticalFlip,
    Resize,
    TimmRandAugment,
    TrivialAugmentWide,
)
from timm.data import auto_augment
from torchvision import transforms as tv
from torchvision.transforms import functional, v2
from torchvision.transforms.autoaugment import _apply_op

HEIGHT, WIDTH = 60, 72
WHOLE = CenterCrop((HEIGHT, WIDTH))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """Images of a row's size, so that their pixels are delivered as they are: noise, soft and flat ones."""
    folder = tmp_path_factory.mktemp("augments")
    (folder / "images" / "all").mkdir(parents=True)
    source = random.Random(3)
    for number in range(6):
        image = Image.frombytes("RGB", (WIDTH, HEIGHT), source.randbytes(3 * WIDTH * HEIGHT))
        if number > 1:
            small = Image.frombytes("RGB", (5, 4), source.randbytes(60))
            image = Image.blend(image, small.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), 0.7 + 0.05 * number)
        if number == 5:
            image = Image.new("RGB", (WIDTH, HEIGHT), (200, 30, 31))
        image.save(folder / "images" / "all" / f"{number}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def pil(dataset: packed.Packed, sample: int) -> Image.Image:
    with Image.open(dataset.files[sample]) as image:
        return image.convert("RGB")


def rows(dataset: packed.Packed, decode: Any, epochs: int = 1, **options: Any) -> list[tuple[int, torch.Tensor]]:
    """Samples and their images, epoch by epoch."""
    plan, daemon = Plan(sampler="uniform"), Daemon(job="augments")
    with Loader(dataset.path, 3, decode=decode, plan=plan, daemon=daemon, **options) as loader:
        return [
            (sample, image.clone())
            for _ in range(epochs)
            for batch in loader
            for sample, image in zip(batch.ids.tolist(), batch.images, strict=True)
        ]


def pixels_of(decode: Any) -> list[dict[str, Any]]:
    """The operations on pixels, as the native module gets them."""
    return documents.view(decode)[1:]


# Nothing about these is left to chance. Arguments are torchvision's.
FIXED: list[tuple[str, dict[str, Any]]] = [
    *(("ColorJitter", {"brightness": (factor, factor)}) for factor in (0.0, 0.35, 1.7)),
    *(("ColorJitter", {"contrast": (factor, factor)}) for factor in (0.0, 0.61, 1.9)),
    *(("ColorJitter", {"saturation": (factor, factor)}) for factor in (0.0, 0.43, 2.6)),
    *(("ColorJitter", {"hue": (shift, shift)}) for shift in (-0.5, -0.123, 0.03, 0.3, 0.5)),
    ("Grayscale", {"num_output_channels": 3}),
    ("RandomGrayscale", {"p": 1.0}),
    *(("RandomSolarize", {"threshold": threshold, "p": 1.0}) for threshold in (0, 99.5, 128, 255)),
    *(("RandomPosterize", {"bits": bits, "p": 1.0}) for bits in (1, 5, 8)),
    ("RandomInvert", {"p": 1.0}),
    ("RandomAutocontrast", {"p": 1.0}),
    ("RandomEqualize", {"p": 1.0}),
    *(("RandomAdjustSharpness", {"sharpness_factor": factor, "p": 1.0}) for factor in (0.0, 0.4, 1.9)),
    ("RandomVerticalFlip", {"p": 1.0}),
    ("RandomHorizontalFlip", {"p": 1.0}),
    ("RandomInvert", {"p": 0.0}),
    ("GaussianBlur", {"kernel_size": 5, "sigma": (1.3, 1.3)}),
    ("GaussianBlur", {"kernel_size": (23, 7), "sigma": (2.0, 2.0)}),
    ("GaussianBlur", {"kernel_size": (3, 119), "sigma": (40.0, 40.0)}),
]


@pytest.mark.parametrize(("name", "options"), FIXED)
def test_an_operation_is_torchvisions(dataset: packed.Packed, name: str, options: dict[str, Any]) -> None:
    expected = getattr(tv, name)(**options)
    worst = 1 if name == "GaussianBlur" else 0
    delivered = rows(dataset, [WHOLE, getattr(transforms, name)(**options)])
    assert len(delivered) == len(dataset)
    for sample, image in delivered:
        wanted = functional.pil_to_tensor(expected(pil(dataset, sample)))
        assert (image.int() - wanted.int()).abs().max() <= worst, dataset.files[sample].name


@pytest.mark.parametrize("module", [tv, v2])
def test_torchvisions_own_objects_are_taken(module: Any) -> None:
    ours: list[Any] = [RandomResizedCrop(32)]
    theirs: list[Any] = [module.RandomResizedCrop(32)]
    for name, options in FIXED:
        if name not in {type(step).__name__ for step in ours}:
            ours.append(getattr(transforms, name)(**options))
            theirs.append(getattr(module, name)(**options))
    jitter = {"brightness": 0.4, "contrast": 0.4, "saturation": (0.5, 1.5), "hue": 0.1}
    assert documents.view(module.Compose(theirs)) == documents.view(ours)
    for mine, other in [
        (RandomApply([ColorJitter(**jitter)], 0.8), module.RandomApply([module.ColorJitter(**jitter)], 0.8)),
        (RandomApply([GaussianBlur(23)]), module.RandomApply(torch.nn.ModuleList([module.GaussianBlur(23)]))),
        (RandomErasing(0.25, value=(1, 2, 3)), module.RandomErasing(0.25, value=[1, 2, 3])),
        (RandAugment(3, 5, 11, "bilinear", 7), module.RandAugment(3, 5, 11, functional.InterpolationMode.BILINEAR, 7)),
        (TrivialAugmentWide(fill=(1, 2, 3)), module.TrivialAugmentWide(fill=[1, 2, 3])),
        (RandomSolarize(9, 0.2), module.RandomSolarize(9, 0.2)),
    ]:
        expected, taken = (pixels_of([RandomResizedCrop(32), step]) for step in (mine, other))
        assert taken == expected


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.0, 1.7, 2.0, 7.25, 60.0])
def test_the_blur_of_pillow_is_pillows(dataset: packed.Packed, radius: float) -> None:
    delivered = rows(dataset, [WHOLE, PillowGaussianBlur(radius, 1.0)])
    assert len(delivered) == len(dataset)
    for sample, image in delivered:
        wanted = functional.pil_to_tensor(pil(dataset, sample).filter(ImageFilter.GaussianBlur(radius)))
        assert torch.equal(image, wanted), dataset.files[sample].name


def test_color_jitter_adjusts_in_any_order(dataset: packed.Packed) -> None:
    factors = {"brightness": 1.4, "contrast": 0.6, "saturation": 1.5, "hue": 0.2}
    jitter = ColorJitter(**{name: (factor, factor) for name, factor in factors.items()})
    seen = Counter()
    expected: dict[int, dict[tuple[str, ...], torch.Tensor]] = {}
    for sample in range(len(dataset)):
        expected[sample] = {}
        for order in itertools.permutations(factors):
            image = pil(dataset, sample)
            for name in order:
                image = getattr(functional, f"adjust_{name}")(image, factors[name])
            expected[sample][order] = functional.pil_to_tensor(image)
    for sample, image in rows(dataset, [WHOLE, jitter], epochs=4):
        orders = [order for order, wanted in expected[sample].items() if torch.equal(image, wanted)]
        assert orders, dataset.files[sample].name
        seen.update(orders[:1])
    assert len(seen) > 8, "they are drawn for each row"


def magnitudes_of(row: torch.Tensor) -> list[float]:
    """`torch.linspace` number by number. With wide instructions, which depend on the CPU, torch's own is a
    rounding error off; that shows where a level is cut."""
    if not row.is_floating_point():
        return row.tolist()
    start, end, last = np.float32(row[0]), np.float32(row[-1]), len(row) - 1
    step = (end - start) / np.float32(last)
    numbers = [
        start + step * np.float32(at) if at < len(row) // 2 else end - step * np.float32(last - at)
        for at in range(len(row))
    ]
    assert np.allclose(numbers, row.numpy(), rtol=1e-6, atol=1e-4)
    return [float(number) for number in numbers]


def outcomes(image: Image.Image, policy: Any) -> dict[tuple[str, float], torch.Tensor]:
    """Everything that one operation of a policy may make of an image."""
    size = (HEIGHT, WIDTH)
    is_wide = isinstance(policy, tv.TrivialAugmentWide)
    space = policy._augmentation_space(31) if is_wide else policy._augmentation_space(31, size)
    found = {}
    for name, (magnitudes, signed) in space.items():
        if magnitudes.ndim == 0:
            numbers = [0.0]
        else:
            numbers = magnitudes_of(magnitudes)
            numbers = numbers if is_wide else [numbers[policy.magnitude]]
        for number in numbers + [-number for number in numbers if signed]:
            made = _apply_op(image, name, float(number), policy.interpolation, policy.fill)
            found[name, number] = functional.pil_to_tensor(made)
    return found


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (TrivialAugmentWide(), tv.TrivialAugmentWide()),
        (
            RandAugment(1, 14, interpolation="bilinear", fill=(9, 8, 7)),
            tv.RandAugment(1, 14, interpolation=functional.InterpolationMode.BILINEAR, fill=[9, 8, 7]),
        ),
    ],
)
def test_one_operation_of_a_policy_is_torchvisions(dataset: packed.Packed, ours: Any, theirs: Any) -> None:
    expected = {sample: outcomes(pil(dataset, sample), theirs) for sample in range(len(dataset))}
    seen = set()
    for sample, image in rows(dataset, [WHOLE, ours], epochs=30):
        drawn = [name for (name, _), wanted in expected[sample].items() if torch.equal(image, wanted)]
        assert drawn, dataset.files[sample].name
        if len(set(drawn)) == 1:
            seen.add(drawn[0])
    assert len(seen) >= 13, f"of all but Identity, which looks like others: {seen}"


def timms_outcomes(image: Image.Image, policy: Any) -> list[torch.Tensor]:
    """Everything that one operation of timm's may make of an image: with both signs, and each interpolation."""
    found = [functional.pil_to_tensor(image)]
    for operation in policy.ops:
        resample = operation.kwargs["resample"]
        for choice in resample if isinstance(resample, tuple) else [resample]:
            for negative in (False, True):
                with pytest.MonkeyPatch.context() as patch:
                    # It draws signs by these, and nothing else.
                    patch.setattr(auto_augment, "_randomly_negate", lambda number, turn=negative: -number if turn else number)
                    magnitude = min(operation.magnitude, 10)
                    level = operation.level_fn(magnitude, operation.hparams) if operation.level_fn else ()
                if operation.name.startswith("Posterize") and level == (0,):
                    # timm asks for 0 bits, which this Pillow refuses; earlier ones made all black.
                    made = Image.new("RGB", image.size)
                else:
                    made = operation.aug_fn(image, *level, **{**operation.kwargs, "resample": choice})
                found.append(functional.pil_to_tensor(made))
    return found


@pytest.mark.parametrize("config", ["rand-m9-n1-inc1-p1.0", "rand-m15-n1-inc1", "rand-m6-n1-p0.5", "rand-m0-n1-inc1", "rand-m3-n1"])
@pytest.mark.parametrize("options", [{}, {"interpolation": Image.Resampling.BICUBIC, "img_mean": (9, 8, 7)}])
def test_one_operation_of_timms_rand_augment_is_timms(dataset: packed.Packed, config: str, options: dict[str, Any]) -> None:
    policy = auto_augment.rand_augment_transform(config, {"img_mean": (124, 116, 104), **options})
    expected = {sample: timms_outcomes(pil(dataset, sample), policy) for sample in range(len(dataset))}
    seen: dict[int, set[int]] = {sample: set() for sample in range(len(dataset))}
    for sample, image in rows(dataset, [WHOLE, policy], epochs=30):
        drawn = [at for at, wanted in enumerate(expected[sample]) if torch.equal(image, wanted)]
        assert drawn, dataset.files[sample].name
        seen[sample].add(drawn[0])
    assert max(map(len, seen.values())) > 8 or "m0" in config


def test_timms_magnitudes_vary_and_what_the_daemon_has_not_is_refused(dataset: packed.Packed) -> None:
    policy = auto_augment.rand_augment_transform("rand-m9-mstd0.5-inc1", {"img_mean": (124, 116, 104)})
    ours = TimmRandAugment(2, 9, 0.5, 0.5, True, 0.45, ("bilinear", "bicubic"), (124, 116, 104))
    assert documents.view([WHOLE, policy]) == documents.view([WHOLE, ours])
    images = [image.numpy().tobytes() for _, image in rows(dataset, [WHOLE, policy], epochs=20)]
    assert len(set(images)) > len(images) // 2
    for config in ("rand-m9-t3a", "rand-m9-tweights", "rand-m9-mmax20", "rand-m9-mstd101"):
        with pytest.raises(ValueError, match="the daemon has timm's 15 operations"):
            documents.view([WHOLE, auto_augment.rand_augment_transform(config, {"img_mean": (124, 116, 104)})])


def test_operations_of_timms_before_its_version_0_5_are_known_without_their_names() -> None:
    for config in ("rand-m9-mstd0.5-inc1", "rand-m7"):
        policy, before = (auto_augment.rand_augment_transform(config, {"img_mean": (124, 116, 104)}) for _ in range(2))
        for operation in before.ops:
            del operation.name, operation.magnitude_max
        assert documents.view([WHOLE, before]) == documents.view([WHOLE, policy])
        before.ops[3].aug_fn = before.ops[4].aug_fn
        with pytest.raises(TypeError, match="other operations than timm's own"):
            documents.view([WHOLE, before])


def test_two_operations_of_rand_augment_are_torchvisions(dataset: packed.Packed) -> None:
    policy = tv.RandAugment(2, 20)
    pairs = {}
    for sample in range(2, 4):
        firsts = outcomes(pil(dataset, sample), policy).values()
        pairs[sample] = [pair for first in firsts for pair in outcomes(functional.to_pil_image(first), policy).values()]
    matched = 0
    for sample, image in rows(dataset, [WHOLE, RandAugment(2, 20)], epochs=5):
        if sample in pairs:
            assert any(torch.equal(image, pair) for pair in pairs[sample])
            matched += 1
    assert matched == 10


def test_random_erasing_fills_a_rectangle(dataset: packed.Packed) -> None:
    colour = torch.tensor([255, 1, 128], dtype=torch.uint8)[:, None, None]
    erased = 0
    for sample, image in rows(dataset, [WHOLE, RandomErasing(0.5, value=(255, 1, 128))], epochs=10):
        original = functional.pil_to_tensor(pil(dataset, sample))
        changed = (image != original).any(0)
        if not changed.any():
            continue
        erased += 1
        lines, columns = (changed.any(axis).nonzero().flatten() for axis in (1, 0))
        part = image[:, lines.min() : lines.max() + 1, columns.min() : columns.max() + 1]
        assert (part == colour).all()
        assert 0.015 <= part[0].numel() / (HEIGHT * WIDTH) <= 0.34
    # Of 60, with a standard deviation of 4.
    assert 12 <= erased <= 48


RECIPE = [
    RandomResizedCrop(32),
    RandomHorizontalFlip(),
    RandomApply([ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
    RandomGrayscale(0.2),
    RandomApply([GaussianBlur(5)]),
    RandomSolarize(128, 0.2),
    RandAugment(),
    RandomOrder([RandomChoice([Grayscale(3), [RandomInvert(), RandomSolarize(99)]], [1, 3]), ColorJitter(0.2)]),
    RandomPerspective(),
    AugMix(),
    ElasticTransform(),
    RandomErasing(0.25),
]


def test_a_row_depends_on_seed_epoch_and_position_only(dataset: packed.Packed) -> None:
    expected = rows(dataset, RECIPE, epochs=2, seed=5)
    again = rows(dataset, RECIPE, epochs=2, seed=5, channels_last=True)
    assert [sample for sample, _ in expected] == [sample for sample, _ in again]
    assert all(torch.equal(image, same) for (_, image), (_, same) in zip(expected, again, strict=True))
    other = rows(dataset, RECIPE, epochs=2, seed=6)
    by_sample = {sample: image for sample, image in expected[: len(dataset)]}
    for changed in (expected[len(dataset) :], other[: len(dataset)]):
        assert all(not torch.equal(image, by_sample[sample]) for sample, image in changed if sample != 5)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """JPEGs of several sizes, parts of which would be decoded in part or in a lower resolution."""
    folder = tmp_path_factory.mktemp("photographs")
    (folder / "images" / "all").mkdir(parents=True)
    source = random.Random(4)
    for number, size in enumerate([(400, 300), (210, 330), (90, 70)]):
        small = Image.frombytes("RGB", (9, 8), source.randbytes(216))
        grain = Image.frombytes("RGB", size, source.randbytes(3 * size[0] * size[1]))
        image = Image.blend(small.resize(size, Image.Resampling.BICUBIC), grain, 0.2)
        image.save(folder / "images" / "all" / f"{number}.jpg", quality=90)
    return packed.pack(folder / "images", folder / "data.shade")


# Without flips, which are done behind the crop.
@pytest.mark.parametrize(("name", "options"), [case for case in FIXED if not case[0].endswith("Flip")])
def test_an_operation_before_a_crop_is_torchvisions(photographs: packed.Packed, name: str, options: dict[str, Any]) -> None:
    ours, theirs = getattr(transforms, name)(**options), getattr(tv, name)(**options)
    bicubic = functional.InterpolationMode.BICUBIC
    # A blurred pixel may be a level off, which the bicubic filter may double.
    worst = 2 if name == "GaussianBlur" else 0
    for sample, image in rows(photographs, [ours, Resize((31, 40), "bicubic")]):
        wanted = functional.pil_to_tensor(tv.Resize((31, 40), bicubic)(theirs(pil(photographs, sample))))
        assert (image.int() - wanted.int()).abs().max() <= worst, photographs.files[sample].name
    for sample, image in rows(photographs, [ours, CenterCrop((60, 80))]):
        wanted = functional.pil_to_tensor(tv.CenterCrop((60, 80))(theirs(pil(photographs, sample))))
        assert (image.int() - wanted.int()).abs().max() <= min(worst, 1), photographs.files[sample].name


def test_colours_and_flips_before_a_random_crop(photographs: packed.Packed) -> None:
    jitter = {"contrast": (1.7, 1.7), "saturation": (0.2, 0.2)}
    crop = RandomResizedCrop(48, interpolation="bicubic")
    decode = [ColorJitter(**jitter), RandomHorizontalFlip(), Grayscale(3), crop, RandomVerticalFlip(), RandomInvert(1.0)]
    # ColorJitter draws their order.
    adjust = (functional.adjust_contrast, 1.7), (functional.adjust_saturation, 0.2)
    seen, mode = set(), functional.InterpolationMode.BICUBIC
    options: dict[str, Any] = {"plan": Plan(sampler="uniform"), "daemon": Daemon(job="before"), "seed": 2}
    with Loader(photographs.path, 3, decode=decode, **options) as loader:
        for batch in (batch for _ in range(6) for batch in loader):
            for row, sample in enumerate(batch.ids.tolist()):
                left, top, width, height = map(int, batch.crops[row].tolist())
                possible = []
                for turn in (adjust, adjust[::-1]):
                    image = pil(photographs, sample)
                    for function, factor in turn:
                        image = function(image, factor)
                    image = functional.to_grayscale(image, 3)
                    part = functional.resized_crop(image, top, left, height, width, [48, 48], mode)
                    part = functional.hflip(part) if batch.flipped[row] else part
                    part = functional.vflip(part) if batch.flipped_down[row] else part
                    possible.append(functional.pil_to_tensor(functional.invert(part)))
                assert any(torch.equal(batch.images[row], each) for each in possible)
                seen.add((bool(batch.flipped[row]), bool(batch.flipped_down[row])))
    assert len(seen) == 4


def test_one_grey_channel_may_come_before_a_crop(photographs: packed.Packed) -> None:
    decode, bicubic = [Grayscale(), Resize((30, 20), "bicubic")], functional.InterpolationMode.BICUBIC
    expected = tv.Compose([tv.Grayscale(), tv.Resize((30, 20), bicubic), tv.PILToTensor()])
    for sample, image in rows(photographs, decode):
        assert torch.equal(image, expected(pil(photographs, sample)))


def test_an_image_too_small_for_a_blur_before_its_crop_is_named(photographs: packed.Packed) -> None:
    with pytest.raises(ShadeError, match=r"2\.jpg.*image of 90 x 70 pixels: GaussianBlur: kernel_size is \(3, 151\)"):
        rows(photographs, [GaussianBlur((3, 151)), CenterCrop(40)])


def test_a_view_beside_one_with_colours_before_its_crop(photographs: packed.Packed) -> None:
    whole = [RandomInvert(1.0), Resize((24, 24), "bicubic")]
    options: dict[str, Any] = {"plan": Plan(sampler="uniform"), "daemon": Daemon(job="beside")}
    with Loader(photographs.path, 3, decode=[whole, [Resize((24, 24), "bicubic")]], **options) as loader:
        for batch in loader:
            for sample, inverted, plain in zip(batch.ids.tolist(), *batch.images, strict=True):
                resize = tv.Resize((24, 24), functional.InterpolationMode.BICUBIC)
                image = pil(photographs, sample)
                assert torch.equal(inverted, functional.pil_to_tensor(resize(functional.invert(image))))
                assert torch.equal(plain, functional.pil_to_tensor(resize(image))), "it is not reduced either"


def test_crops_are_the_same_with_and_without_operations(dataset: packed.Packed) -> None:
    crop: list[Any] = [RandomResizedCrop(32), RandomHorizontalFlip()]
    plain = rows(dataset, crop, seed=5)
    inverted = rows(dataset, [*crop, RandomInvert(1.0)], seed=5)
    assert all(torch.equal(255 - image, cropped) for (_, cropped), (_, image) in zip(plain, inverted, strict=True))


def test_one_grey_channel_comes_behind_operations_and_flips_are_told(dataset: packed.Packed) -> None:
    decode = [WHOLE, RandomInvert(1.0), Grayscale(), RandomVerticalFlip(0.5)]
    told = set()
    for channels_last in (False, True):
        options: dict[str, Any] = {"channels_last": channels_last, "daemon": Daemon(job="grey")}
        with Loader(dataset.path, 3, decode=decode, plan=Plan(sampler="uniform"), seed=1, **options) as loader:
            for batch in loader:
                assert not batch.flipped.any()
                for sample, image, down in zip(batch.ids.tolist(), batch.images, batch.flipped_down, strict=True):
                    expected = functional.pil_to_tensor(functional.invert(pil(dataset, sample)).convert("L"))
                    assert torch.equal(image, expected.flip(1) if down else expected)
                    told.add(bool(down))
    assert told == {False, True}


def test_each_view_has_operations_and_numbers_of_its_own(dataset: packed.Packed) -> None:
    view = [WHOLE, ColorJitter(0.9, 0.9, 0.9, 0.5), RandomErasing(1.0)]
    alone = {sample: image for sample, image in rows(dataset, view, seed=5)}
    options: dict[str, Any] = {"plan": Plan(sampler="uniform"), "daemon": Daemon(job="views"), "seed": 5}
    with Loader(dataset.path, 3, decode=[view, [WHOLE], view], **options) as loader:
        for batch in loader:
            for sample, first, plain, last in zip(batch.ids.tolist(), *batch.images, strict=True):
                assert torch.equal(first, alone[sample])
                assert torch.equal(plain, functional.pil_to_tensor(pil(dataset, sample)))
                assert not torch.equal(first, last)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([Resize(90), ColorJitter(), WHOLE], "got [Resize, ColorJitter, CenterCrop], expected Resize, CenterCrop"),
        ([RandomVerticalFlip(), RandAugment(), RandomResizedCrop(8)], "expected flips behind RandAugment"),
        ([Grayscale(), WHOLE, RandomInvert()], "expected Grayscale(1) last"),
        ([WHOLE, RandomErasing(), RandomHorizontalFlip()], "RandomHorizontalFlip before RandomErasing, as the daemon"),
        ([WHOLE, RandomApply([RandAugment()]), RandomVerticalFlip()], "RandomVerticalFlip before RandomApply"),
        ([WHOLE, RandomVerticalFlip(), RandomVerticalFlip()], "RandomVerticalFlip only once"),
        ([WHOLE, RandomVerticalFlip(2.0)], "RandomVerticalFlip: p"),
        ([WHOLE, Grayscale(), RandomInvert()], "expected Grayscale(1) last"),
        ([WHOLE, RandomApply([Grayscale()])], "Grayscale: num_output_channels is 1"),
        ([WHOLE, GaussianBlur(4)], "kernel_size is (4, 4), but must be odd"),
        ([Resize((8, 8)), GaussianBlur(17)], "less than twice the sides"),
        ([WHOLE, ColorJitter(hue=0.6)], "hue is (-0.6, 0.6)"),
        ([WHOLE, ColorJitter(brightness=-1)], "ColorJitter: got -1, expected at least 0"),
        ([WHOLE, RandomErasing(value="random")], "expected a level from 0 to 255"),
        # Levels of images of floats.
        ([WHOLE, RandomErasing(value=0.5)], "expected a level from 0 to 255"),
        ([WHOLE, tv.RandomErasing(value=0.5)], "expected a level from 0 to 255"),
        ([WHOLE, tv.RandomErasing(value=(0.485, 0.456, 0.406))], "expected a level from 0 to 255"),
        ([WHOLE, v2.RandomErasing(value=[0.5, 1.0, 2.0])], "expected a level from 0 to 255"),
        ([WHOLE, tv.RandAugment(fill=[0.5, 1.0, 2.0])], "expected a level from 0 to 255"),
        ([WHOLE, GaussianBlur(3, 0.0)], "sigma is (0, 0), but must be two numbers above 0 and up to 1024"),
        ([WHOLE, GaussianBlur(3, 1e300)], "sigma is (inf, inf)"),
        ([WHOLE, RandAugment(magnitude=31)], "magnitude is 31, but must be 0 to 30"),
        ([WHOLE, RandAugment(num_magnitude_bins=1)], "num_magnitude_bins is 1, but must be 2 to 255"),
        ([WHOLE, tv.RandAugment(interpolation=functional.InterpolationMode.BOX)], "unknown variant `box`"),
        ([WHOLE, *[RandomInvert()] * 49], "got 50 transforms, those within others included, expected at most 48"),
        ([WHOLE, RandomChoice([])], "RandomChoice: transforms is empty"),
        ([WHOLE, RandomChoice([RandomInvert()], [0.5, 0.5])], "p is 2 numbers, but must be one for each of 1 transforms"),
        ([WHOLE, RandomChoice([RandomInvert(), Grayscale(3)], [1, -1])], "at least 0"),
        ([WHOLE, RandomChoice([RandomInvert(), Grayscale(3)], (0, 0.0))], "not all 0"),
        ([WHOLE, RandomChoice([RandomInvert()], [float("nan")])], "Out of range float"),
        ([WHOLE, RandomChoice([Grayscale()])], "Grayscale: num_output_channels is 1, but must be 3"),
        ([WHOLE, RandomOrder([[Grayscale(1)]])], "Grayscale: num_output_channels is 1, but must be 3"),
        ([WHOLE, RandomChoice([[RandAugment()], RandomInvert()]), RandomVerticalFlip()], "RandomVerticalFlip before RandomChoice"),
        ([WHOLE, RandomOrder([RandomErasing()]), RandomHorizontalFlip()], "RandomHorizontalFlip before RandomOrder"),
        ([WHOLE, RandomGrayscale(float("nan"))], "RandomGrayscale(p=nan)]: Out of range float"),
    ],
)
def test_what_the_daemon_cannot_do_is_named(steps: list[Any], expected: str) -> None:
    with pytest.raises(ValueError) as raised:
        documents.views(steps)
    assert expected in str(raised.value)


def test_numbers_and_enumerations_of_other_libraries_are_taken() -> None:
    bilinear = functional.InterpolationMode.BILINEAR
    for given, plain in [
        (GaussianBlur(np.int64(5), [np.float32(0.5), 2]), GaussianBlur(5, (0.5, 2.0))),
        (RandomErasing(torch.tensor(0.25), value=np.array([1, 2, 3]).tolist()), RandomErasing(0.25, value=(1, 2, 3))),
        (RandomErasing(value=np.uint8(7)), RandomErasing(value=7)),
        (RandAugment(interpolation=bilinear, fill=None), RandAugment(interpolation="bilinear")),
        (TrivialAugmentWide(fill=[1.0, 2, 3]), TrivialAugmentWide(fill=(1, 2, 3))),
        (ColorJitter(None, [0.5, 1.5]), ColorJitter(0, (0.5, 1.5))),
    ]:
        for wrapped in (lambda step: step, lambda step: RandomApply([step])):
            # 2 and 2.0 are the same to the daemon.
            assert pixels_of([WHOLE, wrapped(given)]) == pixels_of([WHOLE, wrapped(plain)])


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (GaussianBlur(object()), "expected a number"),
        (RandomApply(RandomInvert()), "expected a list of transforms"),
        (v2.RandAugment(fill={Image.Image: 3}), "got fill={"),
        (TrivialAugmentWide(fill={"a": 3}), "got fill={"),
    ],
)
def test_arguments_of_no_use_are_named(step: Any, expected: str) -> None:
    with pytest.raises(TypeError, match="decode: ") as raised:
        documents.views([WHOLE, step])
    assert expected in str(raised.value)


@pytest.mark.parametrize("kind", [RandomApply, RandomChoice, RandomOrder])
def test_parts_are_operations_on_pixels_only(kind: Any) -> None:
    name = kind.__name__
    for inner in (RandomHorizontalFlip(), tv.RandomHorizontalFlip(), v2.CenterCrop(8), [Grayscale(3), Resize((8, 8))]):
        for step in (kind([inner]), getattr(v2, name)([inner]), RandomApply([kind([RandomInvert(), inner])])):
            with pytest.raises(TypeError, match=f"{name}: got .*, expected transforms of pixels, .* crops and flips"):
                documents.views([WHOLE, step])
    with pytest.raises(TypeError, match=f"{name}: got .*<lambda>, expected transforms of shade_load.transforms"):
        documents.views([WHOLE, kind([lambda image: image])])
    with pytest.raises(TypeError, match=f"{name}: got .*RandomInvert, expected a list of transforms"):
        documents.views([WHOLE, kind(RandomInvert())])
