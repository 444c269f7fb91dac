"""Mixtures: several datasets that a Loader delivers in one ratio, read as one by one daemon."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import subprocess
import time
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any
from weakref import finalize

from . import _native
from ._native import ShadeError
from .in_place import alone, cache_folder
from .launch import find_program
from .options import INDEX_FILE, dataset_path, number, shown

# Smallest and largest share: they are rounded to millionths.
SHARES = (1e-6, 1e6)
# Bytes of the datasets' names in that of the folder of their index.
_NAMES = 80
# All that the folder of an index has.
_FILES = {INDEX_FILE, "dataset.times"}
# An index that no Loader has used for as long is removed once another one is written.
_UNUSED_SECONDS = 30 * 24 * 3600


# A dataset of a mixture: its path or address, its share, and a sampler of its own.
Share = tuple[str | os.PathLike[str], float] | tuple[str | os.PathLike[str], float, str]


@dataclass(frozen=True)
class Mixture:
    """Datasets with their shares."""

    samples: tuple[int, ...]
    shares: tuple[float, ...]
    # What each dataset is drawn by in place of the plan's sampler.
    samplers: tuple[str | None, ...]

    @property
    def parts(self) -> tuple[range, ...]:
        """The sample ids of each dataset."""
        ends = [sum(self.samples[: at + 1]) for at in range(len(self.samples))]
        return tuple(range(start, end) for start, end in zip([0, *ends], ends, strict=False))

    def numbers(self, ids: Any, torch: Any) -> Any:
        """Which dataset each of these samples is of: a tensor as `ids`, or a list without torch."""
        ends = [part.stop for part in self.parts]
        if torch is None:
            return [bisect_right(ends, sample) for sample in ids.tolist()]
        return torch.bucketize(ids, torch.tensor(ends, device=ids.device), right=True)


def arguments(mixture: Mixture | None) -> dict[str, Any]:
    """What the job's plan has of it."""
    if mixture is None:
        return {}
    parts = zip(mixture.samples, mixture.shares, mixture.samplers, strict=True)
    return {"parts": [[samples, share] if own is None else [samples, share, own] for samples, share, own in parts]}


def samplers(plan: dict[str, Any]) -> set[str]:
    """What draws the plan of a job: its sampler, or those of its mixture's datasets."""
    return {(*part, plan["sampler"])[2] for part in plan["parts"]} or {plan["sampler"]}


def mixed(dataset: Any) -> tuple[Any, Mixture | None]:
    """One dataset as it is; of a list of datasets with shares, the folder of the index of all, and their mixture.

    The first process that mixes these datasets, with this content, writes an index of all into the
    user's cache folder. Shards stay where they are. No process removes it while the mixture is alive.
    """
    if not isinstance(dataset, list | tuple):
        return dataset, None
    if not dataset:
        raise ValueError("dataset: got an empty list, expected (dataset, share) for each dataset of a mixture")
    given = [_entry(entry) for entry in dataset]
    paths, shares, own = zip(*given, strict=True)
    folders = [dataset_path(path) for path in paths]
    contents = [_native.dataset_content(str(folder)) for folder in folders]
    mixture = Mixture(tuple(samples for samples, _ in contents), shares, own)
    # The folder of an address has the index only.
    sources = [path if "://" in path else str(folder) for path, folder in zip(paths, folders, strict=True)]
    kept, in_use = _index_of(sources, folders, [content_id for _, content_id in contents])
    finalize(mixture, in_use.close)
    return kept, mixture


def _entry(entry: Any) -> tuple[str, float, str | None]:
    """The path or address, the share and the sampler of a dataset in the list."""
    if not isinstance(entry, list | tuple) or len(entry) not in (2, 3):
        raise TypeError(f"dataset: got {shown(entry)} in a list, expected (dataset, share) or (dataset, share, sampler)")
    path, share, own = (*entry, None)[:3]
    if own is not None:
        _native.check_field("sampler", own)
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"dataset: got {shown(path)} in a list, expected the path of a folder, or an address")
    return os.fsdecode(path), number("share", share, *SHARES), own


def _index_of(sources: Sequence[str], folders: Sequence[Path], content_ids: Sequence[str]) -> tuple[Path, FileIO]:
    """The folder of the index of all, which never changes: another content has another one. And the file of `_use`."""
    key = hashlib.sha256(socket.gethostname().encode())
    for folder, content_id in zip(folders, content_ids, strict=True):
        # One that was packed anew may say more of the same content: where single fields end.
        index_bytes = (folder / INDEX_FILE).stat().st_size
        key.update(b"\0".join([b"", os.fsencode(folder), content_id.encode(), str(index_bytes).encode()]))
    name = os.fsencode("+".join(Path(source).stem for source in sources))[:_NAMES].decode(errors="ignore")
    kept = _mixtures() / f"{name}-{key.hexdigest()[:16]}"
    in_use = _use(kept)
    try:
        if not (kept / INDEX_FILE).is_file():
            with alone(_lock(kept), name):
                if not (kept / INDEX_FILE).is_file():
                    _write(kept, sources)
                    if [_native.dataset_content(str(dataset_path(source)))[1] for source in sources] != list(content_ids):
                        _remove(kept)
                        raise ShadeError(f"{', '.join(sources)}: changed while their mixture was made: begin again")
                    _remove_unused(kept.parent)
    except BaseException:
        in_use.close()
        raise
    return kept, in_use


def _lock(kept: Path) -> Path:
    return kept.with_name(f"{kept.name}.lock")


def _use(kept: Path) -> FileIO:
    """A file that is locked while it is open, so that no process removes the index, and says when it was used last."""
    while True:
        file = FileIO(f"{kept}{_used_ending()}", "a+")
        fcntl.flock(file, fcntl.LOCK_SH)
        os.utime(file.fileno())
        # Another process may have removed it before it was locked.
        if os.fstat(file.fileno()).st_nlink > 0:
            return file
        file.close()


def _used_ending() -> str:
    """Ending of such files. Machines that share a home may not see each other's locks."""
    return f".used-{socket.gethostname()}"


def _remove_unused(mixtures: Path) -> None:
    """Removes indexes that Loaders of this machine have used, but none for long and none now. What fails is left."""
    ending = _used_ending()
    for path in [path for path in mixtures.iterdir() if path.name.endswith(ending)]:
        kept = path.with_name(path.name.removesuffix(ending))
        with suppress(OSError), FileIO(path, "r+") as used:
            fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
            names = os.listdir(kept) if kept.is_dir() else []
            is_recent = time.time() - os.fstat(used.fileno()).st_mtime < _UNUSED_SECONDS
            if is_recent or kept.is_symlink() or not _FILES.issuperset(names):
                continue
            _remove(kept)
            _lock(kept).unlink(missing_ok=True)
            path.unlink()


def _remove(kept: Path) -> None:
    """Removes the index of a mixture."""
    if kept.is_dir():
        for name in os.listdir(kept):
            (kept / name).unlink()
        kept.rmdir()


def _mixtures() -> Path:
    path = cache_folder("the index of a mixture", "merge the datasets (shade-pack merge OUT DATASET...)") / "mixtures"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _write(kept: Path, sources: Sequence[str]) -> None:
    command = [str(find_program("shade-pack")), "merge", str(kept), *sources, "--in-place", "--relabel", "-q"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise ShadeError(f"cannot mix {', '.join(sources)}: {done.stderr.strip()}")
