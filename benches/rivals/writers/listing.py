"""The files of an ImageFolder with their labels: what all Python writers begin with."""

import os
from pathlib import Path


def samples(source: Path) -> list[tuple[str, int]]:
    """Classes by name, files by name: torchvision's order, with less work than it does."""
    found = []
    for label, name in enumerate(sorted(os.listdir(source))):
        folder = os.path.join(source, name)
        found += [(os.path.join(folder, file), label) for file in sorted(os.listdir(folder))]
    return found


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
