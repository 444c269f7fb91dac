"""The files of an ImageFolder with their labels."""

import os
from pathlib import Path


def list_samples(source: Path) -> list[tuple[str, int]]:
    """Path and label of each file in torchvision's order, with less work than torchvision does."""
    found = []
    for label, name in enumerate(sorted(os.listdir(source))):
        folder = os.path.join(source, name)
        found += [(os.path.join(folder, file), label) for file in sorted(os.listdir(folder))]
    return found


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
