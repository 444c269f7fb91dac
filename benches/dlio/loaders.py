"""Data loaders of the bench: ShadeDataLoader with options, and a trainer that touches all bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
from shade_load.integrations.dlio import ShadeDataLoader
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop


class Uncached(ShadeDataLoader):
    """Nothing is served twice."""

    options = {"cache": 0}


class Decoding(ShadeDataLoader):
    """What ImageNet is trained with."""

    options = {"decode": [RandomResizedCrop(224), RandomHorizontalFlip()]}


def touched(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches, each of whose bytes are copied once, as to a device: into one buffer, used again."""
    room = numpy.empty(0, numpy.uint8)
    for batch in batches:
        at = 0
        for piece in _pieces(batch):
            if at + piece.size > room.size:
                room = numpy.concatenate([room, numpy.empty(at + piece.size - room.size, numpy.uint8)])
            room[at : at + piece.size] = piece
            at += piece.size
        yield batch


def _pieces(batch: Any) -> Iterator[numpy.ndarray]:
    """The batch's bytes: records of shade, tensors of DALI."""
    for part in batch:
        if isinstance(part, dict):
            yield from (tensor.numpy().reshape(-1) for tensor in part.values())
        else:
            yield numpy.frombuffer(part, numpy.uint8)
