"""What a Loader's iteration gives: the batches of an epoch that are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._native import LoaderTimeout, ShadeError
from .batch import Batch
from .timeouts import next_batch

if TYPE_CHECKING:
    from .loader import Loader


class RestOfEpoch(Iterator[Batch]):
    """The rest of one epoch. It keeps no batch: the caller's references do."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._iteration = loader._iteration
        self._begun = False
        self._ended = False

    def __next__(self) -> Batch:
        loader = self._loader
        session = loader._open()
        if loader._device is not None:
            loader._device.let_go()
        if self._ended:
            raise StopIteration
        if self._iteration != loader._iteration:
            raise ShadeError("this iterator belongs to an earlier iteration: a Loader has one at a time")
        if self._begun and loader._asks_for_reports:
            # Between batches: the plan is drawn, and a warning raised as an error loses no batch.
            loader._warn_if_reports_are_missing()
        try:
            native = next_batch(loader, session)
        except LoaderTimeout:
            raise
        except ShadeError:
            self._ended = True
            loader._unbegun = False
            raise
        if not self._begun and native is not None and loader._scores is not None:
            loader._scores.begin(loader._epoch)
        self._begun = True
        batch = None
        if native is not None:
            views = isinstance(loader._job["images"], list)
            batch = Batch(native, loader._torch, loader._fields, loader._transform, loader._device, views)
        # Only now: after a wait that fails the epoch goes on, or begins, where it would have.
        loader._unbegun = False
        loader._resume_at = 0
        if native is None or batch is None:
            self._ended = True
            loader._epoch += 1
            loader._position = 0
            raise StopIteration
        loader._position = native.index + 1
        return batch
