"""shade's packer, and the shards that it writes, from which other systems read as well."""

import subprocess
import sys
from pathlib import Path

from benches.rivals.kinds import Kind

SHARDS, MARKED_SHARDS = "shards", "marked-shards"
# Several for each worker of WebDataset, which hands whole shards to workers.
SHARD_BYTES = "64MB"


def pack(source: Path, out: Path, programs: Path, workers: int, *options: str) -> None:
    """Packs as a user would: waits until the disk has confirmed."""
    _create(programs, "--jobs", str(workers), *options, source, out)


def pack_without_sync(source: Path, out: Path, programs: Path, workers: int) -> None:
    """Packs without waiting for the disk, as all other packers do."""
    pack(source, out, programs, workers, "--no-sync")


def prepare_shards(root: Path, programs: Path, folder: str = SHARDS, *options: str) -> str:
    """Packs the files, unless that was done for another row."""
    if not (root / folder).exists():
        _create(programs, "--shard-size", SHARD_BYTES, *options, root / "files", root / folder)
    return folder


def prepare_to_decode(root: Path, programs: Path, kind: Kind) -> str:
    """Packs the files, raw images as pixels."""
    return prepare_shards(root, programs, SHARDS, *(("--format", "raw") if kind.raw else ()))


def prepare_restart_markers(root: Path, programs: Path, kind: Kind | None = None) -> str:
    """Packs JPEGs with restart markers: the same pixels in other bytes."""
    if kind and not kind.crops:
        sys.exit("these images are no JPEGs, or not cropped")
    return prepare_shards(root, programs, MARKED_SHARDS, "--restart-markers")


def shard_paths(root: Path) -> list[str]:
    """The tar files."""
    return sorted(str(path) for path in (root / SHARDS).glob("*.tar"))


def version(programs: Path) -> str:
    done = subprocess.run([programs / "shade-pack", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _create(programs: Path, *words: str | Path) -> None:
    command = [programs / "shade-pack", "create", "--quiet", *words]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
