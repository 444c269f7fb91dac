"""The shards that shade-pack writes, which several readers read: made once."""

import subprocess
from pathlib import Path

FOLDER = "shards"
# Several for each worker of WebDataset, which hands whole shards to workers.
SHARD_BYTES = "64MB"


def prepare(root: Path, programs: Path, folder: str = FOLDER, *options: str) -> None:
    """Packs the files with `options`, if no other reader's `prepare` has."""
    if not (root / folder).exists():
        words: list[str | Path] = [programs / "shade-pack", "create", "--quiet", "--shard-size", SHARD_BYTES, *options]
        subprocess.run([*words, root / "files", root / folder], stdout=subprocess.DEVNULL, check=True)


def paths(root: Path) -> list[str]:
    """The tar files."""
    return sorted(str(path) for path in (root / FOLDER).glob("*.tar"))
