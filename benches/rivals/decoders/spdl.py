"""SPDL: threads in the training process, and FFmpeg by its own bindings: decodes, crops, resizes, flips."""

import random
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy
import spdl.io
from spdl.pipeline import PipelineBuilder

from benches.rivals.decoders import Batch, Epochs
from benches.rivals.decoders.boxes import random_box
from benches.rivals.kinds import Kind
from benches.rivals.writers.listing import samples

FOLDER = "files"
# Batches that are ready: of its documentation.
READY = 3
Samples = list[tuple[str, int]]


def prepare(_root: Path, _programs: Path, _kind: Kind) -> None:
    """The files are there."""


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    return shuffled(root, workers, size, lambda batch: _decode(batch, kind))


def shuffled(root: Path, workers: int, size: int, decode: Callable[[Samples], Any]) -> Iterator[Iterator[Any]]:
    """Each thread does a whole batch: a task a sample costs its scheduler more than some samples take to decode."""
    files = samples(root / FOLDER)
    while True:
        random.shuffle(files)
        batches = [files[start : start + size] for start in range(0, len(files), size)]
        yield _epoch(batches, workers, decode)


def _epoch(batches: list[Samples], workers: int, decode: Callable[[Samples], Any]) -> Iterator[Any]:
    builder: PipelineBuilder[Any, Any] = PipelineBuilder()
    builder.add_source(batches).pipe(decode, concurrency=workers).add_sink(READY)
    pipeline = builder.build(num_threads=workers, max_failures=0)
    with pipeline.auto_stop():
        yield from pipeline


def _decode(batch: Samples, kind: Kind) -> Batch:
    frames = [_frames(path, kind) for path, _label in batch]
    images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
    return images, numpy.array([label for _path, label in batch])


def _frames(path: str, kind: Kind) -> spdl.io.ImageFrames:
    packets = spdl.io.demux_image(path)
    filters = ["format=pix_fmts=rgb24"]
    if kind.crops:
        left, top, width, height = random_box(packets.width, packets.height)
        flip = ["hflip"] if random.random() < 0.5 else []
        scale = f"scale={kind.side}:{kind.side}:flags=bilinear"
        filters = [f"crop={width}:{height}:{left}:{top}:exact=1", scale, *flip, *filters]
    return spdl.io.decode_packets(packets, filter_desc=",".join(filters))


def version(_programs: Path) -> str:
    return metadata.version("spdl-io")
