"""What `decode` takes for a transform: known classes with known attributes, and nothing else.

An object is known by its exact class. A subclass, or another object with the same attributes, may do
anything, so it is refused by name. torchvision and torch are not imported: who has an object of
theirs has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any

_TORCHVISION = ("torchvision.transforms", "torchvision.transforms.v2")
# Classes of timm's that do what torchvision's of another name do, with the same attributes.
_TIMM = {
    "RandomResizedCropAndInterpolation": "RandomResizedCrop",
    "MaybeToTensor": "ToTensor",
    "MaybePILToTensor": "PILToTensor",
    "ToNumpy": "PILToTensor",
}
# lightly's classes by their modules, with their attributes.
_LIGHTLY = {
    "GaussianBlur": ("lightly.transforms.gaussian_blur", ("prob", "sigmas")),
    "RandomSolarization": ("lightly.transforms.solarize", ("prob", "threshold")),
    "RandomRotate": ("lightly.transforms.rotation", ("prob", "angle")),
    # Both only call the torchvision transform that they hold.
    "RandomRotateDegrees": ("lightly.transforms.rotation", ("transform",)),
    "ToTensor": ("lightly.transforms.torchvision_v2_compatibility", ("transform",)),
}

# torchvision's attributes that are no arguments of ours, and their values with which the daemon
# does the same. `fill` has many spellings: see `_is_same`.
_SAME: dict[str, tuple[object, ...]] = {
    # Acts on tensors only: a PIL image is always antialiased. The last two were defaults once.
    "antialias": (True, None, "warn"),
    "expand": (False,),
    "inplace": (False, True),
    "max_size": (None,),
    "pad_if_needed": (False, None),
    "padding_mode": ("constant",),
}
_OPTIONS = (*_SAME, "fill")
# The operations of timm's RandAugment.
_TIMM_OPERATIONS = (
    "AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast",
    "Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel",
)  # fmt: skip
# Pillow's numbers of them, which torchvision takes, too.
_INTERPOLATIONS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
# Where an object keeps functions that are called beside its class's or instead.
_ADDITIONS = ("_forward_pre_hooks", "_forward_hooks", "forward")

_ELSEWHERE = (
    "give a function of each image to Loader(transform=PerSample(function, workers=...)), which processes call, use "
    "shade_load.ImageFolder with your DataLoader, or Loader(transform=...) on a batch's images, where torchvision draws "
    "once per batch"
)
_FLOATS = (
    "leave it out, as images are uint8 tensors, and make floats of them with "
    "Loader(transform=shade_load.Normalize(mean, std))"
)
_BATCHES = "call it in the training loop, on a batch's images and labels"
_REMEDIES = {
    **dict.fromkeys(
        ("ConvertImageDtype", "Normalize", "PILToTensor", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor"),
        _FLOATS,
    ),
    **dict.fromkeys(("CutMix", "MixUp"), _BATCHES),
    "RGB": "leave it out, as images are RGB",
}


def class_name(transform: object) -> str | None:
    """The name of torchvision's class of which the object is, or which does the same; None for any other class."""
    kind = type(transform)
    if any(_is_of(kind, module, kind.__name__) for module in _TORCHVISION):
        return kind.__name__
    return _TIMM.get(kind.__name__) if _is_of(kind, "timm.data.transforms", kind.__name__) else None


def timm_rand_augment(transform: Any) -> dict[str, Any] | None:
    """The arguments of `TimmRandAugment` that does the same as timm's own object; None for an object of another class.

    Raises:
        ValueError: It has operations or options that the daemon does not have.
        TypeError: An operation is not timm's own.
    """
    module = sys.modules.get("timm.data.auto_augment")
    if not _is_of(type(transform), "timm.data.auto_augment", "RandAugment"):
        return None
    told_names = [
        _timm_name(module, operation) if _is_of(type(operation), "timm.data.auto_augment", "AugmentOp") else None
        for operation in transform.ops
    ]
    if None in told_names:
        raise TypeError("decode: got timm's RandAugment with other operations than timm's own, which may do anything")
    names = tuple(str(name).removesuffix("Increasing") for name in told_names)
    increasing = sum(str(name).endswith("Increasing") for name in told_names)
    told = {
        (operation.prob, operation.magnitude, operation.magnitude_std, getattr(operation, "magnitude_max", None),
         operation.hparams.get("translate_pct", 0.45), str(operation.kwargs))
        for operation in transform.ops
    }  # fmt: skip
    is_whole = names == _TIMM_OPERATIONS and increasing in (0, 6) and transform.choice_weights is None and len(told) == 1
    first = transform.ops[0] if is_whole else None
    if first is None or getattr(first, "magnitude_max", None) is not None or first.magnitude_std == float("inf"):
        raise ValueError(
            f"decode: got {transform!r}, but the daemon has timm's 15 operations with one magnitude each: without 't', "
            "'w', 'mmax' and a 'mstd' of 100 and more"
        )
    resample = first.kwargs["resample"]
    return {
        "num_ops": transform.num_layers,
        "magnitude": first.magnitude,
        "magnitude_std": first.magnitude_std,
        "p": first.prob,
        "increasing": increasing > 0,
        "translate": first.hparams.get("translate_pct", 0.45),
        "interpolations": tuple(map(interpolation, resample if isinstance(resample, list | tuple) else [resample])),
        "fill": tuple(first.kwargs["fillcolor"]),
    }


def _timm_name(module: Any, operation: Any) -> str | None:
    """The name of an operation that has the functions of timm's own; None for any other.

    Before timm 0.5, which scripts such as ConvNeXt's need, an operation does not keep its name.
    """
    names = [operation.name] if hasattr(operation, "name") else list(module.NAME_TO_OP)
    for name in names:
        functions = module.NAME_TO_OP.get(name), module.LEVEL_TO_ARG.get(name)
        if functions[0] is operation.aug_fn and functions[1] is operation.level_fn:
            return str(name)
    return None


def lightlys(transform: object) -> tuple[str, dict[str, Any]] | None:
    """The name and the attributes of an object of lightly's that the daemon can do; None for any other object.

    Raises:
        TypeError: It is of a version of lightly whose class has other attributes.
    """
    name = type(transform).__name__
    module, names = _LIGHTLY.get(name, ("", ()))
    if not _is_of(type(transform), module, name):
        return None
    given = vars(transform)
    if set(given) != set(names):
        raise TypeError(f"decode: got lightly's {name} with {sorted(given)}, expected one of lightly 1.5 with {sorted(names)}")
    return name, dict(given)


def does_each_of_a_batch(transform: object) -> bool:
    """Whether it is a transform of floats that takes a whole batch, and draws for each image: timm's RandomErasing."""
    return _is_of(type(transform), "timm.data.random_erasing", "RandomErasing")


def _is_of(kind: type, module: str, name: str) -> bool:
    """Whether it is a module's class. The module is not imported: who has an object has imported it."""
    return getattr(sys.modules.get(module), name, None) is kind


def in_turn(given: object) -> Sequence[object] | None:
    """The transforms that are applied one after the other; None if it is one transform, or not known."""
    if is_list(given) or _is_torch(given, "Sequential"):
        return held(given, "decode")
    of_lightly = lightlys(given)
    if of_lightly is not None and "transform" in of_lightly[1]:
        return (of_lightly[1]["transform"],)
    match class_name(given):
        case "Compose":
            return held(attributes(given, ("transforms",))["transforms"], "decode: Compose")
        case "Identity":
            return ()
    return None


def held(transforms: Any, place: str) -> Sequence[object]:
    """The transforms in a list, as torchvision's classes keep them.

    Raises:
        TypeError: It is no list of any kind that is known.
    """
    if is_list(transforms):
        return transforms
    if _is_torch(transforms, "Sequential") or _is_torch(transforms, "ModuleList"):
        _refuse_additions(transforms)
        return list(transforms)
    raise TypeError(f"{place}: got {_told(transforms)}, expected a list of transforms")


def attributes(transform: object, names: Collection[str]) -> dict[str, Any]:
    """Attributes of an object of torchvision's that are arguments of ours.

    Raises:
        TypeError: It lacks one, or has one that is not known.
        ValueError: Another one has a value with which the daemon does something else.
    """
    _refuse_additions(transform)
    kept = vars(transform)
    given = {**kept, **kept.get("_modules", {})}
    given = {name: value for name, value in given.items() if not name.startswith("_") and name != "training"}
    name = f"decode: {type(transform).__name__}"
    for option in names:
        if option not in given:
            raise TypeError(f"{name}: torchvision's of this version has no {option!r}, which the daemon needs")
    for option, value in given.items():
        if option not in names and not _is_same(option, value) and not _is_derived(option, value, transform):
            kind = ValueError if option in _OPTIONS else TypeError
            raise kind(f"{name}: got {option}={value!r}, which the daemon does not do")
    return {option: given[option] for option in names}


def interpolation(value: Any) -> Any:
    """The name of an interpolation: torchvision also takes an enumeration and Pillow's numbers. timm has several."""
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, tuple | list):
        return [interpolation(each) for each in value]
    if isinstance(value, int):
        return _INTERPOLATIONS.get(value, value)
    # They differ for tensors only.
    return "nearest" if value == "nearest-exact" else value


def refusal(transform: object, place: str = "decode") -> TypeError:
    """The error for a transform that the daemon does not have."""
    name = class_name(transform)
    if name is not None:
        return TypeError(f"{place}: the daemon has no {name}: {_REMEDIES.get(name, _ELSEWHERE)}")
    if isinstance(transform, type):
        return TypeError(f"{place}: got the class {transform.__name__}, expected an object: {transform.__name__}(...)")
    for base in type(transform).__mro__[1:]:
        if base.__module__.startswith((*_TORCHVISION, "shade_load.")):
            what = f"{_told(transform)}, which extends {base.__name__} and may do something else"
            break
    else:
        what = _told(transform)
    return TypeError(
        f"{place}: got {what}, expected transforms of shade_load.transforms, torchvision's of these names, or \"none\"; "
        f"for others {_ELSEWHERE}"
    )


def is_list(given: object) -> bool:
    """Whether it is a list or tuple that does nothing else."""
    return isinstance(given, list | tuple) and not callable(given)


def _is_torch(given: object, name: str) -> bool:
    """Whether it is of exactly this class of torch.nn."""
    return _is_of(type(given), "torch.nn", name)


def _refuse_additions(module: object) -> None:
    """Refuses functions that torch would call beside the class's own, or instead."""
    if any(vars(module).get(name) for name in _ADDITIONS):
        raise TypeError(f"decode: got {_told(module)} with functions of its own, which the daemon does not call")


def _is_same(option: str, value: Any) -> bool:
    """Whether the daemon does the same as torchvision with this value of an attribute."""
    if option == "fill":
        levels = value if isinstance(value, list | tuple) else [value]
        return all(level is None or (isinstance(level, int | float) and level == 0) for level in levels)
    return isinstance(value, bool | str | None) and value in _SAME.get(option, ())


def _is_derived(option: str, value: Any, transform: Any) -> bool:
    """Whether it is what AutoAugment itself makes of its policy's name."""
    if option != "policies" or class_name(transform) != "AutoAugment":
        return False
    return bool(value == transform._get_policies(transform.policy))


def _told(given: object) -> str:
    """What messages call an object: a plain value as it is, a function's name, else the class's."""
    if isinstance(given, str | bytes | int | float | None):
        return repr(given)
    kind = given if callable(given) and hasattr(given, "__qualname__") else type(given)
    return f"{kind.__module__}.{kind.__qualname__}"
