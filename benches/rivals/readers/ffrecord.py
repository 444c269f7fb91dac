"""FFRecord: one file with an offset a record, from which each worker reads a batch at once, in random order.

By Linux AIO, and past the page cache only on its authors' file system: elsewhere its reads of a worker come in turn."""

from importlib import metadata
from pathlib import Path

import numpy
from ffrecord import FileWriter
from ffrecord.torch import DataLoader, Dataset

from benches.rivals.readers import Epochs

FOLDER = "ffrecord"


class Records(Dataset):
    """Its own class for users to derive from, which reads a batch at once. Checksums are looked at, as shade does."""

    def process(self, _indices: list[int], data: list[numpy.ndarray]) -> list[numpy.ndarray]:
        return data


def prepare(root: Path, _programs: Path) -> None:
    files = sorted(path for path in (root / "files").rglob("*") if path.is_file())
    (root / FOLDER).mkdir()
    with FileWriter(root / FOLDER / "data.ffr", len(files)) as writer:
        for path in files:
            writer.write_one(path.read_bytes())


def epochs(root: Path, workers: int, size: int, _cached: bool) -> Epochs:
    records = Records(str(root / FOLDER / "data.ffr"))
    loader = DataLoader(records, size, shuffle=True, num_workers=workers, collate_fn=list, persistent_workers=True)
    while True:
        yield iter(loader)


def version(_programs: Path) -> str:
    return metadata.version("ffrecord")
