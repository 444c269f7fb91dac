"""Every class of torchvision's two modules of transforms: delivered as torchvision does it, or refused by name."""

from __future__ import annotations

import copy
import inspect
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import documents
import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, Plan
from torchvision import transforms as tv
from torchvision.transforms import functional, v2
from torchvision.transforms.autoaugment import _apply_op
from torchvision.transforms.functional import InterpolationMode

MODULES = [tv, v2]
SIDE = 32
VIEWS_MAX = 16

# Arguments of each class that the daemon has: the usual and the unusual ones.
TAKEN: dict[str, list[dict[str, Any]]] = {
    "CenterCrop": [{"size": SIDE}, {"size": (SIDE, 20)}, {"size": [SIDE + 8]}],
    "Resize": [{"size": (SIDE, 20)}, {"size": [20, SIDE], "interpolation": InterpolationMode.BICUBIC, "antialias": None}],
    "RandomCrop": [{"size": SIDE}, {"size": [SIDE], "padding": [0], "fill": 0, "pad_if_needed": False}],
    "RandomResizedCrop": [{"size": SIDE, "scale": (1.0, 1.0), "ratio": (1.0, 1.0), "antialias": True}],
    "Pad": [{"padding": 4}, {"padding": [2, 2], "fill": 0}, {"padding": (3, 3, 3, 3), "padding_mode": "constant"}],
    "RandomHorizontalFlip": [{}, {"p": 1.0}],
    "RandomVerticalFlip": [{}, {"p": 1}],
    "ColorJitter": [
        {},
        {"brightness": (0.5, 0.5), "contrast": 0.0},
        {"hue": (0.25, 0.25), "saturation": [2.0, 2.0]},
        {"brightness": [1.5, 1.5], "contrast": (0.5, 0.5), "saturation": (0.0, 0.0)},
    ],
    "Grayscale": [{}, {"num_output_channels": 3}],
    "RandomGrayscale": [{}, {"p": 0.9}],
    "GaussianBlur": [{"kernel_size": 5, "sigma": 1.5}, {"kernel_size": [3, 7], "sigma": [0.5, 0.5]}],
    "RandomSolarize": [{"threshold": 128}, {"threshold": 0.5, "p": 1.0}, {"threshold": 256}],
    "RandomPosterize": [{"bits": 3}, {"bits": 1, "p": 1.0}],
    "RandomInvert": [{}, {"p": 0.0}],
    "RandomAutocontrast": [{}, {"p": 1.0}],
    "RandomEqualize": [{}, {"p": 1.0}],
    "RandomAdjustSharpness": [{"sharpness_factor": 2}, {"sharpness_factor": 0.0, "p": 1.0}],
    "RandomChannelPermutation": [{}],
    "RandomRotation": [
        {"degrees": (30, 30)},
        {"degrees": [90, 90], "expand": False},
        {"degrees": (33, 33), "interpolation": InterpolationMode.BICUBIC, "fill": 255},
        {"degrees": (-77.5, -77.5), "interpolation": InterpolationMode.BILINEAR, "fill": [1, 2, 3], "center": None},
        {"degrees": (0, 0), "center": (3, 40)},
        {"degrees": (50, 50), "center": [0, 0]},
        {"degrees": (90, 90), "interpolation": InterpolationMode.BILINEAR, "center": (10.25, -3), "fill": 7},
    ],
    "RandomAffine": [
        {"degrees": 0},
        {"degrees": (20, 20), "fill": 200},
        {"degrees": (0, 0), "scale": (0.7, 0.7)},
        {"degrees": 0, "translate": (0.1, 0.05), "scale": (1.25, 1.25)},
        {"degrees": [5, 5], "shear": [10, 10], "interpolation": InterpolationMode.BILINEAR},
        {"degrees": (12, 12), "scale": (1.7, 1.7), "interpolation": InterpolationMode.BICUBIC},
        {"degrees": (25, 25), "scale": (0.8, 0.8), "shear": (4, 4), "center": (30.5, 2)},
        {"degrees": (25, 25), "translate": (0.05, 0.1), "center": [0, 31]},
        # Places that Pillow's fixed point does not hold.
        {"degrees": (1, 1), "scale": (0.0005, 0.0005), "center": (16.5, 9.5)},
        {"degrees": (-40, -40), "shear": (3, 3, -20, -20), "scale": [2, 2], "fill": [9, 8, 7]},
    ],
    # More of it is in test_perspective.py.
    "RandomPerspective": [{"p": 0.0}, {"p": 0, "interpolation": InterpolationMode.NEAREST, "fill": [1, 2.0, 3]}],
    "RandomErasing": [{"p": 0.0}, {"p": 0, "scale": [0.1, 0.2], "ratio": [1, 2], "value": [1, 2, 3], "inplace": True}],
    "RandAugment": [{"num_ops": 0}, {"num_ops": 0, "magnitude": 30, "interpolation": InterpolationMode.BILINEAR, "fill": [1, 2, 3]}],
    # Its operations are compared in test_loader_augments.py.
    "TrivialAugmentWide": [{}, {"num_magnitude_bins": 5, "interpolation": InterpolationMode.BILINEAR, "fill": [7.0]}],
    "AutoAugment": [
        {},
        {"policy": tv.AutoAugmentPolicy.CIFAR10, "interpolation": InterpolationMode.BILINEAR, "fill": [9, 8, 7]},
        {"policy": tv.AutoAugmentPolicy.SVHN, "fill": 3.0},
    ],
    # These are in test_augments_of_tensors.py.
    "AugMix": [],
    "ElasticTransform": [],
    # It makes five views: see test_loader_views.py.
    "FiveCrop": [],
    "Identity": [{}],
}  # fmt: skip
# Those that hold others are tried below, with many arguments.
HOLDERS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder")

# Arguments of each class that the daemon does not have. No message is about the unusual ones.
REFUSED: dict[str, list[dict[str, Any]]] = {
    "ClampBoundingBoxes": [{}],
    "ClampKeyPoints": [{}],
    "ConvertBoundingBoxFormat": [{"format": "XYXY"}],
    "ConvertImageDtype": [{"dtype": torch.float32}, {"dtype": torch.uint8}],
    "CutMix": [{"num_classes": 3}],
    "GaussianNoise": [{}],
    "JPEG": [{"quality": 50}, {"quality": (5, 95)}],
    "LinearTransformation": [{"transformation_matrix": torch.eye(3), "mean_vector": torch.zeros(3)}],
    "MixUp": [{"num_classes": 3}],
    "Normalize": [{"mean": [0.5], "std": [0.5]}, {"mean": (0.5,) * 3, "std": (0.5,) * 3, "inplace": True}],
    "PILToTensor": [{}],
    "RGB": [{}],
    "RandomIoUCrop": [{}],
    "RandomPhotometricDistort": [{}],
    "RandomResize": [{"min_size": 8, "max_size": 9, "interpolation": InterpolationMode.NEAREST}],
    "RandomShortestSize": [{"min_size": 8, "antialias": False}],
    "RandomZoomOut": [{}],
    "SanitizeBoundingBoxes": [{}],
    "SanitizeKeyPoints": [{}],
    "ScaleJitter": [{"target_size": (8, 8), "interpolation": InterpolationMode.BICUBIC}],
    "SetClampingMode": [{"clamping_mode": "soft"}],
    "TenCrop": [{"size": SIDE, "vertical_flip": True}],
    "ToDtype": [{"dtype": torch.float32, "scale": True}],
    "ToImage": [{}],
    "ToPILImage": [{}],
    "ToPureTensor": [{}],
    "ToTensor": [{}],
    "Transform": [{}],
    "UniformTemporalSubsample": [{"num_samples": 2}],
}  # fmt: skip
NO_TRANSFORMS = ("AutoAugmentPolicy", "InterpolationMode")
# Magnitudes of version 1's AutoAugment, and whether they have a sign. Version 2's differ in
# Solarize's thresholds, 255 times a number in single precision; the daemon goes by version 1's.
MAGNITUDES = tv.AutoAugment()._augmentation_space(10, (SIDE, SIDE))
FRAMING = ("CenterCrop", "RandomCrop", "RandomResizedCrop", "Resize")


def public_classes(module: ModuleType) -> dict[str, type]:
    return {name: kind for name, kind in inspect.getmembers(module, inspect.isclass) if not name.startswith("_")}


@pytest.mark.parametrize("module", MODULES)
def test_all_classes_are_in_a_table(module: ModuleType) -> None:
    """A class that is new in torchvision is refused until somebody decides about it here."""
    known = {*TAKEN, *HOLDERS, *REFUSED, "Lambda", *NO_TRANSFORMS}
    assert public_classes(module).keys() <= known
    assert len(public_classes(module)) >= 40


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.filterwarnings("ignore:The transform `ToTensor")
def test_what_the_daemon_has_not_is_refused_by_name_and_with_a_remedy(module: ModuleType) -> None:
    classes = public_classes(module)
    steps = [classes[name](**options) for name in REFUSED if name in classes for options in REFUSED[name]]
    steps.append(module.Lambda(lambda image: image))
    steps += [next(iter(classes[name])) for name in NO_TRANSFORMS]
    crop = module.CenterCrop(SIDE)
    for step in steps:
        name = type(step).__name__
        places = [
            step,
            [step],
            module.Compose([crop, step]),
            torch.nn.Sequential(crop, step) if isinstance(step, torch.nn.Module) else (crop, step),
            [crop, module.RandomApply([step])],
            [crop, module.RandomOrder([step])],
            [crop, module.RandomChoice([module.RandomInvert(), module.Compose([step])])],
        ]
        for place in places:
            with pytest.raises(TypeError, match=f"the daemon has no {name}: ") as raised:
                documents.views(place)
            text = str(raised.value)
            assert any(remedy in text for remedy in ("shade_load.ImageFolder", "leave it out", "in the training loop"))
            assert "interpolation" not in text and "fill" not in text


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """Images of a row's size: crops of that size are the whole image, and pixels are delivered as they are."""
    folder = tmp_path_factory.mktemp("classes")
    (folder / "images" / "all").mkdir(parents=True)
    source = random.Random(7)
    for number in range(4):
        small = Image.frombytes("RGB", (5, 4), source.randbytes(60))
        noise = Image.frombytes("RGB", (SIDE, SIDE), source.randbytes(3 * SIDE * SIDE))
        image = Image.blend(noise, small.resize((SIDE, SIDE), Image.Resampling.BICUBIC), 0.2 + 0.2 * number)
        image.save(folder / "images" / "all" / f"{number}.png")
    return packed.pack(folder / "images", folder / "data.shade")


def pil(dataset: packed.Packed, sample: int) -> Image.Image:
    with Image.open(dataset.files[sample]) as image:
        return image.convert("RGB")


def pixels(image: Image.Image) -> torch.Tensor:
    return functional.pil_to_tensor(image)


Outcome = tuple[float, Image.Image]


def outcomes(steps: Iterable[Any], image: Image.Image) -> list[Outcome]:
    """What torchvision makes of an image by these steps in turn, each with its chance."""
    found = [(1.0, image)]
    for step in steps:
        found = [(p * q, after) for p, before in found for q, after in outcomes_of(step, before)]
    return found


def outcomes_of(step: Any, image: Image.Image) -> list[Outcome]:
    name = type(step).__name__
    if name == "Compose" or isinstance(step, list | torch.nn.Sequential):
        return outcomes(step if isinstance(step, list) else getattr(step, "transforms", step), image)
    if name == "RandomChoice":
        weights = step.p or [1] * len(step.transforms)
        parts = zip(weights, step.transforms, strict=True)
        return [(p / sum(weights) * q, made) for p, part in parts for q, made in outcomes_of(part, image)]
    if name == "RandomOrder":
        orders = list(itertools.permutations(step.transforms))
        return [(p / len(orders), made) for order in orders for p, made in outcomes(order, image)]
    p = getattr(step, "p", 1.0)
    if p == 0.0:
        # RandomErasing would refuse a PIL image.
        return [(1.0, image)]
    if name == "RandomApply":
        done = outcomes(step.transforms, image)
    elif name == "ColorJitter":
        done = jittered(step, image)
    elif name == "RandomChannelPermutation":
        orders = list(itertools.permutations(image.split()))
        done = [(1.0 / len(orders), Image.merge("RGB", order)) for order in orders]
    elif name == "RandomAffine" and step.translate is not None:
        done = translated(step, image)
    elif name == "AutoAugment":
        done = auto_augmented(step, image)
    else:
        forced = copy.copy(step)
        if hasattr(step, "p"):
            forced.p = 1.0
        done = [(1.0, forced(image))]
    return [(p * q, made) for q, made in done] + [(1.0 - p, image)] if p < 1.0 else done


def jittered(step: Any, image: Image.Image) -> list[Outcome]:
    """A ColorJitter whose factors leave no choice has a result for each order."""
    ranges = {name: getattr(step, name) for name in ("brightness", "contrast", "saturation", "hue")}
    factors = {name: pair[0] for name, pair in ranges.items() if pair is not None and pair[0] == pair[1]}
    assert all(pair is None or name in factors for name, pair in ranges.items())
    orders = list(itertools.permutations(factors))
    found = []
    for order in orders:
        made = image
        for name in order:
            made = getattr(functional, f"adjust_{name}")(made, factors[name])
        found.append((1.0 / len(orders), made))
    return found


def translated(step: Any, image: Image.Image) -> list[Outcome]:
    """Every whole number of pixels, each as often as a number near it is drawn; of the nearest pixel, on black."""
    degrees, scale, shear = step.degrees[0], (step.scale or [1.0])[0], step.shear or [0.0, 0.0]
    found = []
    for right, below in itertools.product(range(-SIDE, SIDE), repeat=2):
        p = 1.0
        for pixels_, share in ((right, step.translate[0]), (below, step.translate[1])):
            most = share * SIDE
            p *= max(min(pixels_ + 0.5, most) - max(pixels_ - 0.5, -most), 0.0) / (2 * most)
        if p > 0.0:
            made = functional.affine(image, degrees, [right, below], scale, shear[::2], center=step.center)
            found.append((p, made))
    return found


def auto_augmented(policy: Any, image: Image.Image) -> list[Outcome]:
    """One of the pairs of operations, each with its chance, and with either sign if it has one."""
    pairs = policy._get_policies(policy.policy)
    fill = policy.fill if isinstance(policy.fill, list) else [float(policy.fill or 0)] * 3
    found = []
    for pair in pairs:
        made = [(1.0 / len(pairs), image)]
        for name, p, nth in pair:
            done = []
            for chance, before in made:
                numbers, signed = MAGNITUDES[name]
                number = 0.0 if nth is None else float(numbers[nth])
                signs = [1.0, -1.0] if signed else [1.0]
                for sign in signs:
                    after = _apply_op(before, name, sign * number, InterpolationMode(policy.interpolation), fill)
                    done.append((chance * p / len(signs), after))
                done.append((chance * (1.0 - p), before))
            made = [(chance, after) for chance, after in done if chance > 0.0]
        found += made
    return found


def delivered(dataset: packed.Packed, views: Sequence[Any], epochs: int) -> list[list[tuple[int, torch.Tensor]]]:
    """For each view its samples and their images, as many views as needed from each Loader."""
    found: list[list[tuple[int, torch.Tensor]]] = []
    for few in (views[at : at + VIEWS_MAX] for at in range(0, len(views), VIEWS_MAX)):
        rows: list[list[tuple[int, torch.Tensor]]] = [[] for _ in few]
        options: dict[str, Any] = {"plan": Plan(sampler="uniform"), "daemon": Daemon(job="classes"), "exact": True}
        with Loader(dataset.path, 4, decode=[list(view) for view in few], **options) as loader:
            for batch in itertools.chain.from_iterable(loader for _ in range(epochs)):
                for rows_of_view, images in zip(rows, batch.images, strict=True):
                    rows_of_view += [(sample, image.clone()) for sample, image in zip(batch.ids.tolist(), images, strict=True)]
        found += rows
    return found


def check_outcomes(dataset: packed.Packed, steps: Sequence[Any], rows: list[tuple[int, torch.Tensor]]) -> None:
    """Each row is one of torchvision's results, and each comes as often as with torchvision."""
    worst = 1 if "GaussianBlur" in repr(steps) else 0
    statistic, freedom = 0.0, 0
    for sample in range(len(dataset)):
        possible: list[tuple[float, torch.Tensor]] = []
        for p, image in outcomes(steps, pil(dataset, sample)):
            equal = next((at for at, (_, other) in enumerate(possible) if torch.equal(other, pixels(image))), None)
            if equal is None:
                possible.append((p, pixels(image)))
            else:
                possible[equal] = (possible[equal][0] + p, possible[equal][1])
        seen: Counter[int] = Counter()
        for image in (image for other, image in rows if other == sample):
            apart = [(image.int() - wanted.int()).abs().max().item() for _, wanted in possible]
            best = min(range(len(possible)), key=apart.__getitem__)
            assert apart[best] <= worst, f"{steps}: no result of torchvision's, {min(apart)} levels off"
            seen[best] += 1
        # The statistic wants a few of each: results that are rarer are counted as one.
        bins: dict[int, list[float]] = {}
        for at, (p, _) in enumerate(possible):
            assert p > 0.0 or seen[at] == 0, f"{steps}: what never comes"
            if p > 0.0:
                counted = bins.setdefault(-1 if p * seen.total() < 5.0 else at, [0.0, 0.0])
                counted[0] += p * seen.total()
                counted[1] += seen[at]
        statistic += sum((count - wanted) ** 2 / wanted for wanted, count in bins.values())
        freedom += len(bins) - 1
    assert statistic <= chi_squared_most(freedom), f"{steps}: {statistic:.1f} of {freedom}"


def chi_squared_most(freedom: int) -> float:
    """What a chi-squared number exceeds about once in three million times (Wilson and Hilferty)."""
    if freedom == 0:
        return 1e-6
    spread = 2.0 / (9.0 * freedom)
    return freedom * (1.0 - spread + 5.0 * spread**0.5) ** 3


def test_what_the_daemon_has_is_torchvisions(dataset: packed.Packed) -> None:
    views, steps = [], []
    for module in MODULES:
        for name, kind in public_classes(module).items():
            for options in TAKEN.get(name, []):
                step = kind(**options)
                if name in FRAMING:
                    view = [step]
                elif name == "Pad":
                    documents.views([step, module.RandomCrop(SIDE)])
                    continue
                elif name == "TrivialAugmentWide":
                    documents.views([module.CenterCrop(SIDE), step])
                    continue
                else:
                    view = [module.CenterCrop(SIDE), step]
                views.append(view)
                steps.append(view[-1:])
    for expected, rows in zip(steps, delivered(dataset, views, 60), strict=True):
        if type(expected[0]).__name__ == "Resize":
            for sample, image in rows:
                wanted = pixels(expected[0](pil(dataset, sample)))
                assert (image.int() - wanted.int()).abs().max() <= 1
        else:
            check_outcomes(dataset, expected, rows)


def trees(module: ModuleType) -> list[list[Any]]:
    """Steps within steps, as torchvision's class takes them."""
    grey, invert = module.Grayscale(3), module.RandomInvert(1.0)
    solarize, posterize = module.RandomSolarize(100, 1.0), module.RandomPosterize(2, 1.0)
    bright = module.ColorJitter(brightness=(0.4, 0.4))
    choice, order, apply = module.RandomChoice, module.RandomOrder, module.RandomApply
    return [
        # DeiT III's 3-Augment.
        [choice([grey, solarize, module.GaussianBlur(5, 1.0)])],
        [choice([grey, invert], p=[1.0, 0.0])],
        [choice([grey, invert, solarize], p=[3, 1, 6])],
        [choice([invert])],
        [choice([module.RandomGrayscale(0.3), module.RandomInvert(0.6)], p=(0.25, 0.75))],
        [choice([module.Compose([grey, invert]), apply([solarize, bright], 0.4), module.Compose([v2.Identity()])])],
        [choice([choice([grey, invert], p=[1, 3]), order([solarize, bright])], p=[0.5, 0.5])],
        [order([solarize, bright, grey])],
        [order([module.Compose([solarize, bright]), invert, apply([posterize], 0.5)])],
        [order([choice([solarize, posterize]), bright])],
        [order([invert])],
        [apply([choice([grey, solarize]), bright], 0.7), invert],
        [apply([apply([grey], 0.5), order([solarize, bright])], 0.5)],
        [bright, choice([solarize, grey]), choice([invert, posterize], [0.1, 0.9])],
        [order([torch.nn.Sequential(solarize, bright), bright])],
    ]  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_steps_within_steps_are_torchvisions(dataset: packed.Packed, module: ModuleType) -> None:
    expected = trees(module)
    views = [[module.CenterCrop(SIDE), *steps] for steps in expected]
    for steps, rows in zip(expected, delivered(dataset, views, 100), strict=True):
        check_outcomes(dataset, steps, rows)
