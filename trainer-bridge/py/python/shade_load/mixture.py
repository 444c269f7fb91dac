"""Mixtures: several datasets that a Loader delivers in one ratio, read as one by one daemon."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _native
from ._native import ShadeError
from .in_place import alone, cache_folder
from .launch import find_program
from .options import INDEX_FILE, dataset_path, number, shown

# Smallest and largest share: they are rounded to millionths.
SHARES = (1e-6, 1e6)
# Characters of the datasets' names in that of the folder of their index.
_NAMES = 80


@dataclass(frozen=True)
class Mixture:
    """Datasets with their shares."""

    samples: tuple[int, ...]
    shares: tuple[float, ...]

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
        return torch.bucketize(ids, torch.tensor(ends), right=True)


def arguments(mixture: Mixture | None) -> dict[str, Any]:
    """What the job's plan has of it."""
    if mixture is None:
        return {}
    return {"parts": [list(part) for part in zip(mixture.samples, mixture.shares, strict=True)]}


def mixed(dataset: Any) -> tuple[Any, Mixture | None]:
    """One dataset as it is; of a list of (dataset, share), the folder of the index of all, and their mixture.

    The first process that mixes these datasets, with this content, writes an index of all into the
    user's cache folder. Shards stay where they are.
    """
    if not isinstance(dataset, list | tuple):
        return dataset, None
    if not dataset:
        raise ValueError("dataset: got an empty list, expected (dataset, share) for each dataset of a mixture")
    given = [_entry(entry) for entry in dataset]
    folders = [folder for folder, _ in given]
    contents = [_native.dataset_content(str(folder)) for folder in folders]
    kept = _index_of(folders, [content_id for _, content_id in contents])
    return kept, Mixture(tuple(samples for samples, _ in contents), tuple(share for _, share in given))


def _entry(entry: Any) -> tuple[Path, float]:
    """The folder and the share of a dataset in the list."""
    if not isinstance(entry, list | tuple) or len(entry) != 2:
        raise TypeError(f"dataset: got {shown(entry)} in a list, expected (dataset, share)")
    path, share = entry
    if isinstance(path, str | os.PathLike) and "://" in os.fsdecode(path):
        raise ValueError(
            f"dataset: got {shown(path)} in a mixture, whose datasets must be folders: copy it "
            f"(shade-pack merge FOLDER {os.fsdecode(path)}), and give FOLDER"
        )
    return dataset_path(path), number("share", share, *SHARES)


def _index_of(folders: Sequence[Path], content_ids: Sequence[str]) -> Path:
    """The folder of the index of all, which never changes: another content has another one."""
    key = hashlib.sha256(socket.gethostname().encode())
    for folder, content_id in zip(folders, content_ids, strict=True):
        key.update(b"\0" + os.fsencode(folder) + b"\0" + content_id.encode())
    name = "+".join(folder.stem for folder in folders)[:_NAMES]
    kept = _mixtures() / f"{name}-{key.hexdigest()[:16]}"
    if not (kept / INDEX_FILE).is_file():
        with alone(kept.with_name(f"{kept.name}.lock"), name):
            if not (kept / INDEX_FILE).is_file():
                _write(kept, folders)
    return kept


def _mixtures() -> Path:
    path = cache_folder("the index of a mixture", "merge the datasets (shade-pack merge OUT DATASET...)") / "mixtures"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _write(kept: Path, folders: Sequence[Path]) -> None:
    command = [str(find_program("shade-pack")), "merge", str(kept), *map(str, folders), "--in-place", "--relabel", "-q"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise ShadeError(f"cannot mix {', '.join(map(str, folders))}: {done.stderr.strip()}")
