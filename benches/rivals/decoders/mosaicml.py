"""MosaicML Streaming: MDS shards on this machine's disk, each record decoded the fastest way."""

from importlib import metadata
from pathlib import Path
from typing import Any

from streaming import StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

from benches.rivals.decoders import Epochs, fast
from benches.rivals.kinds import Kind
from benches.rivals.writers import mosaicml

FOLDER = "mosaicml"


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
    mosaicml.pack(root / "files", root / FOLDER, programs, workers=2)


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    images = Images(kind, local=str(root / FOLDER), shuffle=True, batch_size=size)
    loader = DataLoader(images, size, num_workers=workers, persistent_workers=True)
    try:
        while True:
            yield ((images.numpy(), labels.numpy()) for images, labels in loader)
    finally:
        # It has named shared memory, which the next run of the same data would take for its own.
        del loader, images
        clean_stale_shared_memory()


def version(_programs: Path) -> str:
    return metadata.version("mosaicml-streaming")
