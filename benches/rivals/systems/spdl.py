"""SPDL: threads in the training process, each of which does a whole batch of files."""

import random
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy
import spdl.io
import torch
from PIL import Image
from spdl.pipeline import PipelineBuilder

from benches.rivals.image_folder import list_samples, read_file
from benches.rivals.kinds import Kind, random_box
from benches.rivals.systems import Batch, DecodeImage, ImageEpochs, RecordEpochs

# Batches that are ready, as in its documentation.
READY = 3
# FFmpeg's filter.
RGB = "format=pix_fmts=rgb24"
Samples = list[tuple[str, int]]


def read(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    return _epochs(root, workers, size, lambda batch: [read_file(path) for path, _label in batch])


def decode(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """FFmpeg by SPDL's own bindings: decodes, crops, resizes, flips."""

    def decoded(batch: Samples) -> Batch:
        frames = [_frames(path, kind) for path, _label in batch]
        return spdl.io.to_numpy(spdl.io.convert_frames(frames)), _labels(batch)

    return _epochs(root, workers, size, decoded)


def decode_fast(root: Path, workers: int, size: int, kind: Kind, decode_image: DecodeImage) -> ImageEpochs:
    """Each image is decoded into its place in the batch."""

    def decoded(batch: Samples) -> Batch:
        images = numpy.empty((len(batch), kind.side, kind.side, 3), numpy.uint8)
        for (path, _label), image in zip(batch, images, strict=True):
            decode_image(read_file(path), into=image)
        return images, _labels(batch)

    return _epochs(root, workers, size, decoded)


def recipe(root: Path, workers: int, size: int, kind: Kind) -> ImageEpochs:
    """SPDL's FFmpeg decodes whole images. torchvision's and timm's transforms follow in its threads."""
    from benches.rivals import recipe_lists

    transform = recipe_lists.OfPillow(kind.augments)
    # As in a DataLoader's workers: PyTorch has no threads beside the pipeline's.
    torch.set_num_threads(1)

    def transformed(batch: Samples) -> Batch:
        samples = [transform(Image.fromarray(_pixels(path))) for path, _label in batch]
        return [torch.stack(view).numpy() for view in zip(*samples, strict=True)], _labels(batch)

    return _epochs(root, workers, size, transformed)


def _pixels(path: str) -> numpy.ndarray:
    frames = spdl.io.decode_packets(spdl.io.demux_image(path), filter_desc=RGB)
    return spdl.io.to_numpy(spdl.io.convert_frames(frames))


def _epochs(root: Path, workers: int, size: int, make_batch: Callable[[Samples], Any]) -> Iterator[Iterator[Any]]:
    """A whole permutation each epoch.

    A task a sample would cost its scheduler more than some samples take to decode."""
    files = list_samples(root / "files")
    while True:
        random.shuffle(files)
        batches = [files[start : start + size] for start in range(0, len(files), size)]
        yield _epoch(batches, workers, make_batch)


def _epoch(batches: list[Samples], workers: int, make_batch: Callable[[Samples], Any]) -> Iterator[Any]:
    builder: PipelineBuilder[Any, Any] = PipelineBuilder()
    builder.add_source(batches).pipe(make_batch, concurrency=workers).add_sink(READY)
    pipeline = builder.build(num_threads=workers, max_failures=0)
    with pipeline.auto_stop():
        yield from pipeline


def _frames(path: str, kind: Kind) -> spdl.io.ImageFrames:
    packets = spdl.io.demux_image(path)
    filters = [RGB]
    if kind.crops:
        left, top, width, height = random_box(packets.width, packets.height)
        flip = ["hflip"] if random.random() < 0.5 else []
        scale = f"scale={kind.side}:{kind.side}:flags=bilinear"
        filters = [f"crop={width}:{height}:{left}:{top}:exact=1", scale, *flip, *filters]
    return spdl.io.decode_packets(packets, filter_desc=",".join(filters))


def _labels(batch: Samples) -> numpy.ndarray:
    return numpy.array([label for _path, label in batch])


def version(_programs: Path) -> str:
    return metadata.version("spdl-io")
