"""LitData: its chunks on this machine's disk, each record decoded the fastest way."""

from importlib import metadata
from pathlib import Path
from typing import Any

from litdata import StreamingDataLoader, StreamingDataset

from benches.rivals.decoders import Epochs, fast
from benches.rivals.kinds import Kind
from benches.rivals.writers import litdata

FOLDER = "litdata"


class Images(StreamingDataset):
    """Its own class for users to derive from."""

    def __init__(self, kind: Kind, **options: Any) -> None:
        super().__init__(**options)
        self._kind = kind

    def __getitem__(self, at: Any) -> tuple[Any, int]:
        sample = super().__getitem__(at)
        return fast.decode(sample["image"], self._kind), sample["label"]


def prepare(root: Path, programs: Path, _kind: Kind) -> None:
    (root / FOLDER).mkdir()
    litdata.pack(root / "files", root / FOLDER, programs, workers=2)


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    images = Images(kind, input_dir=str(root / FOLDER / "chunks"), shuffle=True)
    loader = StreamingDataLoader(images, batch_size=size, num_workers=workers, persistent_workers=True)
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


def version(_programs: Path) -> str:
    return metadata.version("litdata")
