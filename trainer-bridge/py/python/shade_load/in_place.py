"""Trains on what was not packed, in a folder or a bucket: its index is kept in the user's cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import _native
from ._native import ShadeError
from .launch import find_program
from .options import INDEX_FILE

# Lines of shade-pack's that an error has.
_LINES = 20
_BY_HAND = "make the index yourself (shade-pack index FOLDER OUT)"


def indexed(dataset: Any) -> Any:
    """The dataset itself, if it is packed; of a folder of images or tars, the folder of its index.

    What is neither comes back as it is: `dataset_path` says what is wrong with it. The index is
    compared with the folder's folders and tars each time, or with all that lies below an address,
    and made again if they have changed.
    """
    if isinstance(dataset, str | os.PathLike) and "://" in os.fsdecode(dataset):
        address = os.fsdecode(dataset).rstrip("/")
        return dataset if _is_packed(address) else _index_of(address)
    folder = _images(dataset)
    return dataset if folder is None else _index_of(folder)


def _is_packed(address: str) -> bool:
    """Whether a packed dataset lies at an address. A store that does not say is an error."""
    try:
        _native.dataset_folder(address)
    except FileNotFoundError:
        return False
    return True


def _images(dataset: Any) -> Path | None:
    """The canonical path of a folder that may hold images or tars."""
    try:
        path = Path(os.fsdecode(dataset)).resolve()
        if not path.is_dir() or (path / INDEX_FILE).exists():
            return None
        with os.scandir(path) as entries:
            found = [entry for entry in entries if _may_hold_images(entry)]
    except (OSError, TypeError, ValueError):
        return None
    # A folder of datasets, as `create --splits` makes it, is no folder of classes.
    if not found or any((path / entry.name / INDEX_FILE).exists() for entry in found):
        return None
    return path


def _may_hold_images(entry: os.DirEntry[str]) -> bool:
    return entry.is_dir() or entry.name.lower().endswith((".tar", ".tar.gz", ".tgz"))


def _index_of(folder: Path | str) -> Path:
    """The folder of the index of a folder or an address, which is right when this returns."""
    name = folder.name if isinstance(folder, Path) else folder.rsplit("/", 1)[-1]
    kept = cache_folder("the index of a folder that is not packed", _BY_HAND) / f"{name}-{_key(folder)}"
    with alone(kept.with_name(f"{kept.name}.lock"), folder):
        report = _run(folder, kept)
    if not report["unchanged"]:
        print(_told(report, folder, kept), file=sys.stderr, flush=True)
    return kept


def cache_folder(what: str, instead: str) -> Path:
    """The user's folder for what is kept between trainings. An error says `what`, and what to do instead."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(base) / "shade"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ShadeError(
            f"{what} is kept in {path}, which cannot be made: {error}. Set XDG_CACHE_HOME, or {instead} "
            f"and give OUT as dataset"
        ) from None
    return path


def _key(folder: Path | str) -> str:
    """Tells folders apart. Machines that share a home may have other files at one path, not at one address."""
    text = os.fsencode(folder)
    if isinstance(folder, Path):
        text += b"\0" + socket.gethostname().encode()
    return hashlib.sha256(text).hexdigest()[:16]


@contextmanager
def alone(lock: Path, folder: Path | str) -> Iterator[None]:
    """Lets one process of this user at a time look at an index or make it."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"shade: another process indexes {folder}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _run(folder: Path | str, kept: Path) -> dict[str, Any]:
    """What shade-pack says of the index. Its progress goes to standard error."""
    command = [str(find_program("shade-pack")), "index", str(folder), str(kept), "--update", "--json"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=_pipe()) as packer:
        words: list[str] = []
        if packer.stderr is not None:
            for line in packer.stderr:
                text = line.decode(errors="replace").rstrip("\n")
                words = [*words[-_LINES:], text]
                print(f"shade: {text}", file=sys.stderr, flush=True)
        report = packer.stdout.read() if packer.stdout is not None else b""
    if packer.returncode != 0:
        said = "\n".join(word for word in words if word) or "see standard error"
        raise ShadeError(
            f"cannot index {folder}: {said}\n`shade-pack index {folder} OUT` has options, such as --on-bad skip and --labels: "
            f"give OUT as dataset"
        )
    made: dict[str, Any] = json.loads(report)
    return made


def _pipe() -> int | None:
    """None where a bar can be drawn: on the terminal itself."""
    try:
        is_terminal = sys.stderr is sys.__stderr__ and os.isatty(2)
    except OSError:
        is_terminal = False
    return None if is_terminal else subprocess.PIPE


def _told(report: dict[str, Any], folder: Path | str, kept: Path) -> str:
    samples, seconds = report["samples"], report["seconds"]
    why = f"; made again, as {report['changed']}" if report.get("changed") else ""
    text = (
        f"shade: indexed {samples} images of {folder} in {seconds:.1f} s ({samples / max(seconds, 1e-9):.0f}/s), nothing was "
        f"packed; the index is kept in {kept}{why}"
    )
    if (probe := report.get("probe")) is None:
        return text
    return (
        f"{text}\nshade: measured here with {probe['files']} files: {probe['files_per_s']:.0f} files/s opened and read, "
        f"up to {probe['records_per_s']:.0f} records/s packed: shade-pack create {folder} OUT.shade"
    )
