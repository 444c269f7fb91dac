"""The memory that a Loader and its processes share: a file without a name.

Processes read and write it by system calls, at places that a message names, so they map nothing and
own nothing. When the last process that has it open is gone, the kernel frees it.
"""

from __future__ import annotations

import mmap
import os
import weakref
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

# Free places of results whose memory is kept: as many as a loop that keeps no batch has.
_KEPT = 4
# The samples that processes are at: 8 bytes for each, in the first page.
_FIRST_BYTES = mmap.PAGESIZE


class SharedFile:
    """The file. A process that is started gets it with its arguments."""

    def __init__(self) -> None:
        self.number = os.memfd_create("shade-per-sample", os.MFD_CLOEXEC)
        self._end = _FIRST_BYTES
        # Free places by their length.
        self._free: dict[int, list[int]] = {}
        os.ftruncate(self.number, self._end)

    def __getstate__(self) -> Any:
        return DupFd(self.number)

    def __setstate__(self, received: Any) -> None:
        self.number = received.detach()

    def take(self, length: int) -> int:
        """Where a place of at least this length begins, which nobody else has."""
        room = _room(length)
        if free := self._free.get(room):
            return free.pop()
        os.ftruncate(self.number, self._end + room)
        place, self._end = self._end, self._end + room
        return place

    def give_back(self, place: int, length: int) -> None:
        """A place that was taken for this length is free."""
        self._free.setdefault(_room(length), []).append(place)

    def close(self) -> None:
        """Closes it here. What is mapped stays."""
        os.close(self.number)


class Mapped:
    """A mapped place of the file, for a batch's results."""

    def __init__(self, file: SharedFile, length: int) -> None:
        self.place = file.take(length)
        self.memory = mmap.mmap(file.number, length, offset=self.place)


class Outputs:
    """The places of results. One is free again once the last array and tensor in it is gone."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        # By their length: sizes of images that are about as large have their places in common.
        self._free: dict[int, list[Mapped]] = {}
        self._is_closed = False

    def take(self, length: int) -> Mapped:
        """A free place of at least this length, or one more."""
        room = _room(length)
        free = self._free.get(room)
        return free.pop() if free else Mapped(self._file, room)

    def lease(self, mapped: Mapped) -> Any:
        """The bytes of a place as an array, whose end gives it back. Arrays and tensors made of it keep it."""
        whole = np.frombuffer(mapped.memory, np.uint8)
        weakref.finalize(whole, self.give_back, mapped).atexit = False
        return whole

    def give_back(self, mapped: Mapped) -> None:
        """The place is free. The memory of more than a loop needs goes back to the system."""
        if self._is_closed:
            return
        free = self._free.setdefault(len(mapped.memory), [])
        if len(free) < _KEPT:
            free.append(mapped)
            return
        mapped.memory.madvise(mmap.MADV_REMOVE)
        free.insert(0, mapped)

    def close(self) -> None:
        """Unmaps what is free. What is not goes with its last array."""
        self._is_closed = True
        self._free.clear()


def _room(length: int) -> int:
    """A power of two, so that lengths that vary find free places. What is not written takes no memory."""
    return max(mmap.PAGESIZE, 1 << max(length - 1, 0).bit_length())
