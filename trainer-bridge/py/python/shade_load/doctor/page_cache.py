"""Files in the page cache: how much of them is there, and taking them out, without root."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

# Each file is a round trip or two to a remote store.
_THREADS = 32
# Files of a set that are looked at.
_LOOKED_AT = 64


def drop(paths: Sequence[str]) -> int:
    """Takes files out of the page cache, as far as nobody uses them; returns their bytes."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return sum(pool.map(_drop, paths))


def cached_share(paths: Sequence[str]) -> float | None:
    """Share of the pages of some of these files that are in the page cache; None where nobody tells."""
    some = paths[:: max(1, len(paths) // _LOOKED_AT)]
    with ThreadPoolExecutor(_THREADS) as pool:
        found = [pages for pages in pool.map(_pages, some) if pages is not None]
    total = sum(pages for pages, _ in found)
    return sum(cached for _, cached in found) / total if total else None


def _drop(path: str) -> int:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Pages that were just written stay until they are on the disk. Not every file system allows
        # this on a file that is open for reading.
        with suppress(OSError):
            os.fdatasync(file)
        with suppress(OSError):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.fstat(file).st_size
    finally:
        os.close(file)


def _pages(path: str) -> tuple[int, int] | None:
    """Pages of a file, and those of them that are cached. None where it is empty, or the kernel does not tell."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
            count = -(-len(mapped) // mmap.PAGESIZE)
            told = ctypes.create_string_buffer(count)
            # The view must be gone before the mapping is closed.
            view = ctypes.c_char.from_buffer(mapped)
            failed = libc.mincore(ctypes.addressof(view), len(mapped), told)
            del view
            return None if failed else (count, sum(byte & 1 for byte in told.raw))
    except (OSError, ValueError):
        return None
