"""FFRecord: one file with an offset for each record. Each worker reads a batch at once, in random
order.

It reads by Linux AIO. Only on its authors' file system does it read past the page cache; elsewhere
the reads of a worker come one after the other."""

from importlib import metadata
from pathlib import Path

import numpy
from ffrecord import FileWriter
from ffrecord.torch import DataLoader, Dataset

from benches.rivals.systems import RecordEpochs

FOLDER = "ffrecord"


class Records(Dataset):
    """The class that users derive from, which reads a batch at once and checks its checksums, as
    shade does."""

    def process(self, _indices: list[int], data: list[numpy.ndarray]) -> list[numpy.ndarray]:
        return data


def prepare(root: Path, _programs: Path) -> str:
    files = sorted(path for path in (root / "files").rglob("*") if path.is_file())
    (root / FOLDER).mkdir()
    with FileWriter(root / FOLDER / "data.ffr", len(files)) as writer:
        for path in files:
            writer.write_one(path.read_bytes())
    return FOLDER


def read(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    records = Records(str(root / FOLDER / "data.ffr"))
    loader = DataLoader(records, size, shuffle=True, num_workers=workers, collate_fn=list, persistent_workers=True)
    while True:
        yield iter(loader)


def version(_programs: Path) -> str:
    return metadata.version("ffrecord")
