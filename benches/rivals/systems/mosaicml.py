"""MosaicML Streaming: MDSWriter, and StreamingDataset over MDS shards on the local disk."""

from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory, merge_index
from torch.utils.data import DataLoader

from benches.rivals.image_folder import list_samples, read_file
from benches.rivals.kinds import Kind
from benches.rivals.systems import DecodedSamples, DecodeImage, ImageEpochs

FOLDER = "mosaicml"


def pack(source: Path, out: Path, _programs: Path, workers: int) -> None:
    """Workers as its documentation has them: a writer each, and the indices merged at the end."""
    out.mkdir()
    samples = list_samples(source)
    size = -(-len(samples) // workers)
    parts = [(str(out / str(part)), samples[part * size : (part + 1) * size]) for part in range(workers)]
    # Forked, so that nothing is imported twice.
    with get_context("fork").Pool(workers) as pool:
        pool.starmap(_write, parts)
    merge_index(str(out), keep_local=True)


def _write(out: str, part: list[tuple[str, int]]) -> None:
    with MDSWriter(out=out, columns={"image": "bytes", "label": "int"}) as writer:
        for path, label in part:
            writer.write({"image": read_file(path), "label": label})


def prepare(root: Path, programs: Path, _kind: Kind) -> str:
    pack(root / "files", root / FOLDER, programs, workers=2)
    return FOLDER


class Images(DecodedSamples, StreamingDataset):
    """The class that users derive from."""


def decode(root: Path, workers: int, size: int, _kind: Kind, decode_image: DecodeImage) -> ImageEpochs:
    images = Images(local=str(root / FOLDER), shuffle=True, batch_size=size)
    images.decode_image = decode_image
    loader = DataLoader(images, size, num_workers=workers, persistent_workers=True)
    try:
        while True:
            yield ((images.numpy(), labels.numpy()) for images, labels in loader)
    finally:
        # It has named shared memory, which the next run over the same data would take for its own.
        del loader, images
        clean_stale_shared_memory()


def version(_programs: Path) -> str:
    return metadata.version("mosaicml-streaming")
