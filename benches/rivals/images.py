"""The JPEGs of the bench `pack`, made by the Rust benches."""

import subprocess
from pathlib import Path


def make(programs: Path, files: int, scratch: Path) -> Path:
    """An ImageFolder of so many, 110 KB each, below `scratch`."""
    folder = scratch / "images"
    subprocess.run([programs / "shade-benches", "--images", folder, "--files", str(files)], check=True)
    (tree,) = folder.iterdir()
    return tree
