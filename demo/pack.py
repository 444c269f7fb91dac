"""Packs an ImageFolder with `shade-pack create`, unless that was done before from the same files."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path


def binary(name: str) -> Path:
    """A program that the wheel carries, for example `shade-pack`."""
    spec = importlib.util.find_spec("shade_load")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the Python package shade_load is not installed: run `make build`")
    path = Path(spec.origin).parent / "bin" / name
    if not path.is_file():
        raise FileNotFoundError(f"{path}: not there: run `make build`")
    return path


def fingerprint(folder: Path) -> str:
    """Changes when a file below `folder` is added, removed, resized or written."""
    digest = hashlib.sha256()
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            status = os.stat(path)
            digest.update(f"{os.path.relpath(path, folder)}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def pack(source: Path, target: Path) -> None:
    """Makes `target`, a packed data set, from the ImageFolder `source`; keeps one made from the same files."""
    stamp = target.with_suffix(".source")
    now = fingerprint(source)
    if (target / "dataset.shade").is_file() and stamp.is_file() and stamp.read_text() == now:
        print(f"packed before: {target}", flush=True)
        return
    stamp.unlink(missing_ok=True)
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([binary("shade-pack"), "create", source, target], check=True)
    stamp.write_text(now)
