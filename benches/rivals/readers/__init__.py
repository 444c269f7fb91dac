"""A module for each reader. All deliver every record's bytes as they are, once an epoch, in batches.

`prepare(root, programs)` makes what it reads out of the ImageFolder ROOT/files: the folder ROOT/FOLDER.
`epochs(root, workers, size, cached)` opens it, in a ROOT that may be another name for the same, and yields epoch
after epoch, as many as are asked for. An epoch is an iterator of batches, each to be gone through once, of anything that has bytes;
a batch is valid until the next is asked for. `cached`: who has a cache of its own may keep records in it. `version(programs)`
names what read."""

from collections.abc import Iterable, Iterator
from typing import Any

Epochs = Iterator[Iterator[Iterable[Any]]]
