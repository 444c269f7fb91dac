"""An iterator of a Loader: the rest of one epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._native import AnotherStart, LoaderTimeout, ShadeError
from .batch import Batch

if TYPE_CHECKING:
    from .loader import Loader


class RestOfEpoch(Iterator[Batch]):
    """The rest of one epoch. It keeps no batch: the caller's references do.

    Another thread may begin the Loader's next iteration while one waits here: then the batches are
    those of the other.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._iteration = loader._at.iteration
        self._is_first = True
        self._has_ended = False

    def __next__(self) -> Batch:
        loader = self._loader
        loader._open()
        if loader._device is not None:
            loader._device.let_go()
        if self._has_ended:
            raise StopIteration
        while True:
            # In this order: a start that is looked at later may be of a later iteration.
            start = loader._at.start
            if self._iteration != loader._at.iteration:
                raise ShadeError("this iterator belongs to an earlier iteration: a Loader has one at a time")
            try:
                batch = loader._next(self._is_first, start)
            except AnotherStart:
                # Perhaps by `set_epoch` or a loaded state, which this iterator goes on with.
                continue
            except LoaderTimeout:
                raise
            except ShadeError:
                self._has_ended = True
                loader._at.is_unbegun = False
                raise
            break
        self._is_first = False
        if batch is None:
            self._has_ended = True
            raise StopIteration
        return batch
