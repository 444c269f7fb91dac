"""DALI's CPU pipeline. Outputs are used where they lie."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import nvidia.dali
import wds2idx
from nvidia.dali import fn, pipeline_def, types
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
        grey = fn.color_space_conversion(images, image_type=types.RGB, output_type=types.GRAY)
        images = fn.cat(grey, grey, grey, axis=2)
    if fn.random.coin_flip(probability=BLUR_P, dtype=types.BOOL):
        sigma = fn.random.uniform(range=list(BLUR_SIGMA))
        images = fn.gaussian_blur(images, window_size=BLUR_KERNEL, sigma=sigma)
    if fn.random.coin_flip(probability=SOLARIZE_P, dtype=types.BOOL):
        levels = list(range(256))
        solarized = [255 - level if level >= SOLARIZE_FROM else level for level in levels]
        images = fn.lookup_table(images, keys=levels, values=solarized, dtype=types.UINT8)
    return images, labels


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


def version(_programs: Path) -> str:
    return nvidia.dali.__version__
