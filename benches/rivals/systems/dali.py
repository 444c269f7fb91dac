"""DALI's CPU pipeline. Outputs are used where they lie."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import nvidia.dali
import wds2idx
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali import math as dali_math
from nvidia.dali.auto_aug import augmentations
from nvidia.dali.auto_aug.rand_augment import apply_rand_augment
from nvidia.dali.pipeline import Pipeline

from benches.rivals.kinds import (
    BLUR_KERNEL, BLUR_P, BLUR_SIGMA, COLOURS, GREY_P, JITTER, JITTER_P, RATIO, SCALE, SOLARIZE_FROM, SOLARIZE_P, Kind,
)  # fmt: skip
from benches.rivals.systems import Batch, ImageEpochs, RecordEpochs, shade_pack

# The name of the reader in each pipeline.
READER = "reader"
# Samples in the shuffle buffer: as many as in WebDataset's documentation.
SHUFFLE_BUFFER = 1_000
# Any image's extension: a sample that has none of them is an error.
EXTENSIONS = "jpg;jpeg;png;webp;bmp;ppm"
# An epoch ends with its own samples: the last batch is filled up, so that the next epoch begins
# with a batch.
WHOLE_BATCHES = {"pad_last_batch": True, "name": READER, "prefetch_queue_depth": 2}


def prepare_shards(root: Path, programs: Path) -> str:
    """shade's shards, with DALI's own index beside each."""
    folder = shade_pack.prepare_shards(root, programs)
    for path in shade_pack.shard_paths(root):
        with wds2idx.IndexCreator(path, _index(path), verbose=False) as creator:
            creator.create_index()
    return folder


def _index(path: str) -> str:
    return path.removesuffix(".tar") + ".idx"


def read_shards(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    """Shards in order, mixed in a shuffle buffer."""
    paths = shade_pack.shard_paths(root)
    yield from _epochs(_shards(paths, list(map(_index, paths)), **_pipeline(workers, size)), size, _records)


@pipeline_def(device_id=None)
def _shards(paths: list[str], indices: list[str]) -> object:
    return fn.readers.webdataset(
        paths=paths,
        index_paths=indices,
        ext=EXTENSIONS,
        case_sensitive_extensions=False,
        missing_component_behavior="error",
        random_shuffle=True,
        initial_fill=SHUFFLE_BUFFER,
        **WHOLE_BATCHES,
    )


def read_files(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    """The files themselves, in a whole permutation each epoch."""
    yield from _epochs(_files(str(root / "files"), **_pipeline(workers, size)), size, _records)


@pipeline_def(device_id=None)
def _files(folder: str) -> object:
    contents, _labels = fn.readers.file(file_root=folder, shuffle_after_epoch=True, **WHOLE_BATCHES)
    return contents


def decode(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """The files in a whole permutation each epoch: decoder with a random crop, resize, flip."""
    yield from _epochs(_images(str(root / "files"), kind, **_pipeline(workers, size)), size, _arrays)


@pipeline_def(device_id=None)
def _images(folder: str, kind: Kind) -> tuple[object, object]:
    return _cropped(folder, kind)


def augment(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """As `decode`, with the recipe. The jitter's order is DALI's own, the same for all images."""
    recipe = _jittered if kind.augments == "colours" else _contrastive
    yield from _epochs(recipe(str(root / "files"), kind, **_pipeline(workers, size)), size, _arrays)


@pipeline_def(device_id=None)
def _jittered(folder: str, kind: Kind) -> tuple[object, object]:
    images, labels = _cropped(folder, kind)
    brightness, contrast, saturation = COLOURS
    return fn.color_twist(images, **_factors(brightness, contrast, saturation)), labels


def _factors(brightness: float, contrast: float, saturation: float) -> dict[str, object]:
    """Random ones, for each image."""
    by = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
    return {name: fn.random.uniform(range=[1 - most, 1 + most]) for name, most in by.items()}


@pipeline_def(device_id=None, enable_conditionals=True)
def _contrastive(folder: str, kind: Kind) -> tuple[object, object]:
    images, labels = _cropped(folder, kind)
    brightness, contrast, saturation, hue = JITTER
    if fn.random.coin_flip(probability=JITTER_P, dtype=types.BOOL):
        images = fn.color_twist(
            images,
            **_factors(brightness, contrast, saturation),
            # In degrees.
            hue=fn.random.uniform(range=[-360 * hue, 360 * hue]),
        )
    if fn.random.coin_flip(probability=GREY_P, dtype=types.BOOL):
        images = _grey(images)
    if fn.random.coin_flip(probability=BLUR_P, dtype=types.BOOL):
        sigma = fn.random.uniform(range=list(BLUR_SIGMA))
        images = fn.gaussian_blur(images, window_size=BLUR_KERNEL, sigma=sigma)
    if fn.random.coin_flip(probability=SOLARIZE_P, dtype=types.BOOL):
        images = _solarized(images, SOLARIZE_FROM)
    return images, labels


def _grey(images: Any) -> Any:
    grey = fn.color_space_conversion(images, image_type=types.RGB, output_type=types.GRAY)
    return fn.cat(grey, grey, grey, axis=2)


def _solarized(images: Any, threshold: int) -> Any:
    levels = list(range(256))
    solarized = [255 - level if level >= threshold else level for level in levels]
    return fn.lookup_table(images, keys=levels, values=solarized, dtype=types.UINT8)


def recipe(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """The nearest operator to each step of the recipe's lists; `table.py` says which steps it lacks.

    The jitter's order is DALI's own. The flip comes last, where it costs nothing."""
    from benches.rivals import recipe_lists

    lists = recipe_lists.views(kind.augments, recipe_lists.PillowBlur)
    yield from _epochs(_recipe(str(root / "files"), lists, **_pipeline(workers, size)), size, _arrays_of_views)


@pipeline_def(device_id=None, enable_conditionals=True)
def _recipe(folder: str, lists: list[list[Any]]) -> tuple[object, ...]:
    records, labels = fn.readers.file(file_root=folder, shuffle_after_epoch=True, **WHOLE_BATCHES)
    if len(lists) == 1:
        (crop, *steps), *_ = lists
        area, ratio = list(crop.scale), list(crop.ratio)
        images = fn.decoders.image_random_crop(
            records, output_type=types.RGB, random_area=area, random_aspect_ratio=ratio
        )
        return _floats(fn.resize(images, size=crop.size, interp_type=_filter(crop)), steps), labels
    images = fn.decoders.image(records, output_type=types.RGB)
    views = []
    for crop, *steps in lists:
        options = {"random_area": list(crop.scale), "random_aspect_ratio": list(crop.ratio)}
        view = fn.random_resized_crop(images, size=crop.size, interp_type=_filter(crop), **options)
        views.append(_floats(view, steps))
    return *views, labels


def _filter(crop: Any) -> Any:
    filters = {"bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}
    return filters[crop.interpolation.value]


def _floats(images: Any, steps: list[Any]) -> Any:
    """What follows a crop: the steps on bytes, floats, the steps on floats."""
    names = [type(step).__name__ for step in steps]
    at = names.index("ToTensor")
    mean, std, behind = [0.0], [1.0], at + 1
    if "Normalize" in names:
        mean, std, behind = steps[at + 1].mean, steps[at + 1].std, at + 2
    flip = steps[names.index("RandomHorizontalFlip")]
    for step in steps[:at]:
        images = _STEPS[type(step).__name__](images, step)
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[255 * level for level in mean],
        std=[255 * level for level in std],
        mirror=fn.random.coin_flip(probability=flip.p),
    )
    for step in steps[behind:]:
        images = _STEPS[type(step).__name__](images, step)
    return images


def _perhaps(images: Any, p: float, change: Callable[[Any], Any]) -> Any:
    if fn.random.coin_flip(probability=p, dtype=types.BOOL):
        images = change(images)
    return images


def _one_of(images: Any, steps: list[Any]) -> Any:
    number = fn.random.uniform(values=list(range(len(steps))), dtype=types.INT32)
    return _numbered(images, steps, number)


def _numbered(images: Any, steps: list[Any], number: Any) -> Any:
    if len(steps) == 1:
        return _STEPS[type(steps[0]).__name__](images, steps[0])
    if number == 0:
        changed = _STEPS[type(steps[0]).__name__](images, steps[0])
    else:
        changed = _numbered(images, steps[1:], number - 1)
    return changed


def _all_of(images: Any, steps: list[Any]) -> Any:
    for step in steps:
        images = _STEPS[type(step).__name__](images, step)
    return images


def _twisted(images: Any, jitter: Any) -> Any:
    ranges = {name: getattr(jitter, name) for name in ("brightness", "contrast", "saturation")}
    if jitter.hue is not None:
        # In degrees.
        ranges["hue"] = [360 * most for most in jitter.hue]
    return fn.color_twist(images, **{name: fn.random.uniform(range=list(each)) for name, each in ranges.items()})


def _blurred(images: Any, sigmas: Any, kernel: int = 0) -> Any:
    """DALI chooses a kernel for 0."""
    return fn.gaussian_blur(images, window_size=kernel, sigma=fn.random.uniform(range=list(sigmas)))


def _rand_augmented(images: Any, step: Any) -> Any:
    """timm's operations, each with its chance, of a magnitude without its deviation."""
    first = step.ops[0]
    for _ in range(step.num_layers):
        images = _perhaps(images, first.prob, lambda given: _operated(given, int(first.magnitude)))
    return images


def _operated(images: Any, magnitude: int) -> Any:
    # One level for all colours, and the linear filter: its operators have no others.
    moved = {"fill_value": 116, "interp_type": types.INTERP_LINEAR}
    return apply_rand_augment(_OPERATIONS, images, 1, magnitude, TIMM_BINS, shape=[224, 224], **moved)


def _erased(images: Any, step: Any) -> Any:
    """The mean colour in place of noise, which would need a whole image of it."""
    area = fn.random.uniform(range=[step.min_area, step.max_area])
    ratio = dali_math.exp(fn.random.uniform(range=list(step.log_aspect_ratio)))
    high, wide = dali_math.min(dali_math.sqrt(area * ratio), 1.0), dali_math.min(dali_math.sqrt(area / ratio), 1.0)
    top, left = fn.random.uniform(range=[0.0, 1.0]) * (1 - high), fn.random.uniform(range=[0.0, 1.0]) * (1 - wide)
    options = {"normalized_anchor": True, "normalized_shape": True, "axis_names": "HW", "fill_value": 0.0}
    return fn.erase(images, anchor=fn.stack(top, left), shape=fn.stack(high, wide), **options)


# By the classes of torchvision and timm.
_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "RandomHorizontalFlip": lambda images, _step: images,
    "RandomApply": lambda images, step: _perhaps(images, step.p, lambda given: _all_of(given, step.transforms)),
    "RandomChoice": lambda images, step: _one_of(images, step.transforms),
    "ColorJitter": _twisted,
    "Grayscale": lambda images, _step: _grey(images),
    "RandomGrayscale": lambda images, step: _perhaps(images, step.p, _grey),
    "RandomSolarize": lambda images, step: _perhaps(images, step.p, lambda given: _solarized(given, step.threshold)),
    "GaussianBlur": lambda images, step: _blurred(images, step.sigma, step.kernel_size[0]),
    "PillowBlur": lambda images, step: _perhaps(images, step.p, lambda given: _blurred(given, step.radius)),
    "RandAugment": _rand_augmented,
    "RandomErasing": lambda images, step: _perhaps(images, step.probability, lambda given: _erased(given, step)),
}
# timm's magnitudes are from 0 to 10. Its operations, with their ranges.
TIMM_BINS = 11
_OPERATIONS = [
    augmentations.auto_contrast,
    augmentations.equalize,
    augmentations.invert,
    augmentations.rotate.augmentation((0, 30), True),
    augmentations.posterize.augmentation((4, 0), False, augmentations.poster_mask_uint8),
    augmentations.solarize.augmentation((256, 0)),
    augmentations.solarize_add.augmentation((0, 110), False, augmentations.solarize_add_shift),
    augmentations.color.augmentation((0, 0.9), True, augmentations.shift_enhance_range),
    augmentations.contrast.augmentation((0, 0.9), True, augmentations.shift_enhance_range),
    augmentations.brightness.augmentation((0, 0.9), True, augmentations.shift_enhance_range),
    augmentations.sharpness.augmentation((0, 0.9), True, augmentations.sharpness_kernel),
    augmentations.shear_x.augmentation((0, 0.3), True),
    augmentations.shear_y.augmentation((0, 0.3), True),
    augmentations.translate_x.augmentation((0, 0.45), True),
    augmentations.translate_y.augmentation((0, 0.45), True),
]


def _cropped(folder: str, kind: Kind) -> tuple[object, object]:
    records, labels = fn.readers.file(file_root=folder, shuffle_after_epoch=True, **WHOLE_BATCHES)
    if not kind.crops:
        return fn.decoders.image(records, output_type=types.RGB), labels
    images = fn.decoders.image_random_crop(
        records, output_type=types.RGB, random_area=list(SCALE), random_aspect_ratio=list(RATIO)
    )
    images = fn.resize(images, size=(kind.side, kind.side))
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def _pipeline(workers: int, size: int) -> dict[str, int]:
    return {"batch_size": size, "num_threads": workers, "prefetch_queue_depth": 2}


def _epochs(pipe: Pipeline, size: int, batch_of: Callable[[Any, int], Any]) -> Iterator[Iterator[Any]]:
    pipe.build()
    samples = pipe.reader_meta(READER)["epoch_size"]
    while True:
        yield (batch_of(pipe.run(), min(size, samples - start)) for start in range(0, samples, size))


def _records(outputs: Any, count: int) -> list[Any]:
    (batch,) = outputs
    # Views, which have bytes themselves: DALI's own `at` copies each, and NumPy's arrays over them
    # take longer.
    return [batch[row] for row in range(count)]


def _arrays(outputs: Any, count: int) -> Batch:
    images, labels = (numpy.asarray(output.as_tensor()) for output in outputs)
    return images[:count], labels[:count].reshape(-1)


def _arrays_of_views(outputs: Any, count: int) -> Batch:
    *views, labels = (numpy.asarray(output.as_tensor())[:count] for output in outputs)
    return views, labels.reshape(-1)


def version(_programs: Path) -> str:
    return nvidia.dali.__version__
