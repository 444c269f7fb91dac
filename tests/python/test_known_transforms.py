"""`decode` takes known transforms only: whatever else looks like one is refused by name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import documents
import pytest
import torch
from shade_load import transforms as ours
from torchvision import transforms as tv
from torchvision.transforms import v2
from torchvision.transforms.functional import InterpolationMode

WHOLE = ours.CenterCrop(32)


def refused(given: object, kinds: type[Exception] | tuple[type[Exception], ...] = TypeError) -> str:
    with pytest.raises(kinds) as raised:
        documents.views(given)
    return str(raised.value)


class Parts:
    """Has the attributes of `Compose` and `RandomApply`, and does something else."""

    def __init__(self, *parts: Any) -> None:
        self.transforms, self.p = list(parts), 0.5

    def __call__(self, image: Any) -> Any:
        return image


class Compose(Parts):
    """The name of torchvision's class."""


class RandomApply(Parts):
    """The name of torchvision's class."""


class ReversedCompose(tv.Compose):
    """A subclass with a behaviour of its own."""

    def __call__(self, image: Any) -> Any:
        for step in reversed(self.transforms):
            image = step(image)
        return image


class ReversedCompose2(v2.Compose):
    """A subclass with a behaviour of its own."""


class Fork(torch.nn.Sequential):
    """Its modules are no steps one after the other."""

    def forward(self, image: Any) -> Any:
        return self[0](image)


class CallableList(list[Any]):
    """A list that does something else when it is called."""

    def __call__(self, image: Any) -> Any:
        return self[0](image)


INVERT: list[Any] = [tv.RandomInvert(1.0), v2.RandomInvert(1.0), ours.RandomInvert(1.0)]


@pytest.mark.parametrize("inner", INVERT)
@pytest.mark.parametrize("kind", [Parts, Compose, RandomApply])
def test_what_has_transforms_is_not_taken_for_a_compose(kind: Callable[..., Any], inner: Any) -> None:
    for given in ([WHOLE, kind(inner)], [WHOLE, tv.RandomApply([kind(inner)])], kind(WHOLE, inner)):
        text = refused(given)
        assert kind.__name__ in text and "shade_load.ImageFolder" in text


@pytest.mark.parametrize(
    "given",
    [
        ReversedCompose([WHOLE]),
        ReversedCompose2([WHOLE]),
        Fork(WHOLE_MODULE := tv.CenterCrop(32), tv.RandomInvert(1.0)),
        CallableList([WHOLE]),
        torch.nn.ModuleList([WHOLE_MODULE]),
        torch.nn.ParameterList(),
        {WHOLE},
        {WHOLE: 1},
        (step for step in [WHOLE]),
        None,
        7,
        b"none",
        tv.RandomHorizontalFlip,
    ],
)
def test_other_collections_and_objects_are_refused(given: object) -> None:
    is_plain = isinstance(given, int | bytes | None)
    name = repr(given) if is_plain else getattr(given, "__name__", type(given).__name__)
    for tried in (given, [given], [WHOLE, given], [WHOLE, ours.RandomApply([given])]):
        assert (name if "genexpr" not in name else "generator") in refused(tried)
    with pytest.raises(TypeError, match="(?s)decode: got .* beside a list of transforms"):
        documents.views([[WHOLE], given])


def test_lists_sequential_and_compose_are_one_step_after_the_other() -> None:
    def steps(module: ModuleType) -> list[Any]:
        return [module.CenterCrop(32), module.RandomHorizontalFlip(0.25), module.RandomInvert(1.0)]

    expected = documents.views([ours.CenterCrop(32), ours.RandomHorizontalFlip(0.25), ours.RandomInvert(1.0)])
    for module in (tv, v2):
        crop, flip, invert = steps(module)
        for given in (
            [crop, flip, invert],
            tv.Compose([crop, [flip, (invert,)]]),
            module.Compose([crop, flip, invert]),
            tv.Compose(torch.nn.Sequential(crop, flip, invert)),
            torch.nn.Sequential(crop, torch.nn.Sequential(flip, invert)),
            [module.Compose([crop]), module.Compose([v2.Identity(), module.Compose([flip, invert])])],
        ):
            assert documents.views(given) == expected
    assert documents.views([[WHOLE], tv.Compose([WHOLE]), (WHOLE,)]) == documents.views(WHOLE) * 3


# A subclass of each class that the daemon knows may override what it does.
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (module, name)
        for module in (tv, v2, ours)
        for name in ours.__all__
        if inspect.isclass(getattr(ours, name, None)) and hasattr(module, name)
    ],
)
def test_a_subclass_is_another_class(module: ModuleType, name: str) -> None:
    known = getattr(module, name)
    changed = type("Changed", (known,), {})
    step = changed(*arguments(name, module))
    for given in (in_its_place(step, name), [WHOLE, ours.RandomApply([step])], [WHOLE, tv.RandomApply([step])]):
        text = refused(given)
        assert "Changed" in text and f"extends {name}" in text
    assert documents.views(in_its_place(known(*arguments(name, module, size=(32, 32))), name))


FRAMINGS = ("Resize", "CenterCrop", "FiveCrop", "RandomCrop", "RandomResizedCrop")


def in_its_place(step: Any, name: str) -> list[Any]:
    """What makes rows, with the step where it may be."""
    if name == "Pad":
        return [step, ours.RandomCrop(32)]
    return [step] if name in FRAMINGS else [WHOLE, step]


def arguments(name: str, module: ModuleType, size: Any = 32) -> tuple[Any, ...]:
    """Arguments that a class needs, by its name."""
    if name in FRAMINGS:
        return (size,)
    if name in ("RandomApply", "RandomChoice", "RandomOrder"):
        return ([module.RandomInvert()],)
    numbers = {"GaussianBlur": 3, "RandomSolarize": 128, "RandomPosterize": 4, "RandomAdjustSharpness": 2, "Grayscale": 3}
    numbers |= {"Pad": 4, "RandomRotation": 5, "RandomAffine": 5}
    return (numbers[name],) if name in numbers else ()


def lightlys(name: str, **attributes: Any) -> type:
    """A class of that name whose objects have these attributes, as lightly 1.5 and 1.6 have them."""
    return type(name, (), {"__init__": lambda self: vars(self).update(attributes)})


def test_lightlys_classes_are_ours_by_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    # lightly is not installed for the tests. The bench of public scripts has it.
    turned = tv.RandomApply([tv.RandomRotation(10)], 0.4)
    given = {
        lightlys("GaussianBlur", prob=0.5, sigmas=(0.1, 2)): ("gaussian_blur", ours.PillowGaussianBlur((0.1, 2), 0.5)),
        lightlys("RandomSolarization", prob=0.2, threshold=128): ("solarize", ours.RandomSolarize(128, 0.2)),
        lightlys("RandomRotate", prob=0.0, angle=90): (
            "rotation", ours.RandomApply([ours.RandomRotation((90, 90))], 0.0),
        ),
        lightlys("RandomRotateDegrees", transform=turned): ("rotation", turned),
        lightlys("ToTensor", transform=turned): ("torchvision_v2_compatibility", turned),
    }  # fmt: skip
    for kind, (module, expected) in given.items():
        step = kind()
        assert "shade_load.ImageFolder" in refused([WHOLE, step]), "a class of that name of another module"
        full = f"lightly.transforms.{module}"
        monkeypatch.setitem(sys.modules, full, module_of := ModuleType(full))
        setattr(module_of, kind.__name__, kind)
        assert documents.views([WHOLE, step]) == documents.views([WHOLE, expected])
        assert documents.views([WHOLE, ours.RandomApply([step])]) == documents.views([WHOLE, ours.RandomApply([expected])])
        if kind.__name__ == "RandomRotate":
            # As in SimCLRTransform before lightly 1.5.22: what is never done is in no flip's way.
            flip = ours.RandomHorizontalFlip()
            assert documents.views([WHOLE, step, flip]) == documents.views([WHOLE, expected, flip])
        step.scale = 1
        assert f"got lightly's {kind.__name__} with" in refused([WHOLE, step])


@pytest.mark.parametrize("module", [tv, v2])
def test_an_object_that_was_changed_is_refused(module: ModuleType) -> None:
    def do(*_: Any) -> None:
        raise AssertionError

    for change in (
        lambda step: step.register_forward_hook(do),
        lambda step: step.register_forward_pre_hook(do),
        lambda step: setattr(step, "forward", do),
        lambda step: setattr(step, "mean", 3),
    ):
        for step in (module.RandomInvert(), module.CenterCrop(32), module.RandomApply([module.RandomInvert()])):
            change(step)
            assert type(step).__name__ in refused([step] if isinstance(step, module.CenterCrop) else [WHOLE, step])
    sequence = torch.nn.Sequential(module.CenterCrop(32))
    sequence.register_forward_hook(do)
    assert "Sequential" in refused(sequence)
    step = module.RandomInvert()
    del step.p
    assert "has no 'p'" in refused([WHOLE, step])


@pytest.mark.parametrize("module", [tv, v2])
@pytest.mark.parametrize(
    ("name", "positional", "options"),
    [
        ("Resize", (32,), {"max_size": 64}),
        ("Resize", ((32, 32),), {"antialias": False}),
        ("RandomResizedCrop", (32,), {"antialias": False}),
        ("RandomCrop", (32,), {"pad_if_needed": True}),
        ("RandomCrop", (32, 4), {"fill": 1}),
        ("RandomCrop", (32, 4), {"fill": (0, 0, 1)}),
        ("RandomCrop", (32, (1, 2)), {}),
        ("RandomCrop", (32, 4.5), {}),
        *(("RandomCrop", (32, 4), {"padding_mode": mode}) for mode in ("edge", "reflect", "symmetric")),
        ("CenterCrop", ((32.5, 32.5),), {}),
        ("RandomResizedCrop", (32, (0.5, 2.0)), {}),
        ("RandAugment", (), {"interpolation": InterpolationMode.BOX}),
        ("RandomRotation", (10,), {"expand": True}),
        ("RandomAffine", (10,), {"center": [0, 16_385]}),
        ("Pad", ((1, 2),), {}),
        ("Pad", (1,), {"fill": 1}),
        ("Pad", (1,), {"padding_mode": "edge"}),
        ("TrivialAugmentWide", (), {"fill": 0.5}),
        ("RandomErasing", (), {"value": 0.5}),
        ("Grayscale", (2,), {}),
    ],
)
def test_arguments_that_the_daemon_does_not_have_are_named(
    module: ModuleType, name: str, positional: tuple[Any, ...], options: dict[str, Any]
) -> None:
    try:
        step = getattr(module, name)(*positional, **options)
    except (TypeError, ValueError):
        pytest.skip("torchvision refuses it, too")
    last = [step] if "Crop" in name or name == "Resize" else [WHOLE, step]
    text = refused(last, (TypeError, ValueError))
    assert next(iter(options), name) in text or name in text


@pytest.mark.parametrize("module", [tv, v2])
def test_arguments_that_change_nothing_are_taken(module: ModuleType) -> None:
    for given, expected in (
        (module.Resize((32, 32), antialias=None), ours.Resize((32, 32))),
        (module.RandomResizedCrop(32, interpolation=2), ours.RandomResizedCrop(32)),
        (module.Resize((32, 32), interpolation=3), ours.Resize((32, 32), "bicubic")),
        (module.Resize((32, 32), InterpolationMode.NEAREST_EXACT), ours.Resize((32, 32), "nearest")),
        *(
            (module.RandomResizedCrop(32, interpolation=mode), ours.RandomResizedCrop(32, interpolation=mode.value))
            for mode in InterpolationMode
            if mode is not InterpolationMode.NEAREST_EXACT
        ),
        (module.RandomCrop(32, padding=[4, 4, 4, 4], fill=(0, 0, 0)), ours.RandomCrop(32, 4)),
        ([WHOLE, module.RandomErasing(inplace=True)], [WHOLE, ours.RandomErasing()]),
    ):
        assert documents.views(given) == documents.views(expected)
