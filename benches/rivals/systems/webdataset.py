"""WebDataset: ShardWriter, and its pipeline over shards."""

from importlib import metadata
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import default_collate

from benches.rivals.image_folder import list_samples, read_file
from benches.rivals.kinds import Kind
from benches.rivals.systems import DecodeImage, ImageEpochs, RecordEpochs, shade_pack

FOLDER = "webdataset"
# Its documentation's advice.
SHARD_BYTES_MAX = 1e9
# For decoding: each worker gets as many shards, as one that has fewer ends early.
SHARDS = 8
# Samples, as in its documentation.
SHUFFLE_BUFFER = 1_000


def pack(source: Path, out: Path, _programs: Path, _workers: int) -> None:
    """The writer has no workers of its own."""
    out.mkdir()
    with webdataset.ShardWriter(str(out / "%06d.tar"), maxsize=SHARD_BYTES_MAX, verbose=0) as writer:
        for number, (path, label) in enumerate(list_samples(source)):
            writer.write({"__key__": f"{number:09d}", "jpg": read_file(path), "cls": label})


def read(root: Path, workers: int, size: int, _keep: bool) -> RecordEpochs:
    """shade's shards in the order in which they lie; it was shuffled when they were packed."""
    samples = webdataset.WebDataset(shade_pack.shard_paths(root), shardshuffle=False).map(_record)
    loader = _loader(samples.batched(size, collation_fn=list), workers)
    while True:
        yield iter(loader)


def _record(sample: dict[str, Any]) -> bytes:
    return next(content for name, content in sample.items() if not name.startswith("__"))


def prepare(root: Path, _programs: Path, _kind: Kind) -> str:
    (root / FOLDER).mkdir()
    files = list_samples(root / "files")
    per_shard = -(-len(files) // SHARDS)
    with webdataset.ShardWriter(str(root / FOLDER / "%06d.tar"), maxcount=per_shard, verbose=0) as writer:
        # Dealt to the shards, so that each shard has samples of all classes.
        for number, (path, label) in enumerate(file for shard in range(SHARDS) for file in files[shard::SHARDS]):
            writer.write({"__key__": f"{number:09d}", "image": read_file(path), "cls": label})
    return FOLDER


def decode(root: Path, workers: int, size: int, _kind: Kind, decode_image: DecodeImage) -> ImageEpochs:
    """Shards in random order, and a shuffle buffer."""

    def decoded(sample: dict[str, Any]) -> tuple[Any, int]:
        return decode_image(sample["image"]), int(sample["cls"])

    shards = sorted(str(path) for path in (root / FOLDER).glob("*.tar"))
    images = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(SHUFFLE_BUFFER).map(decoded)
    loader = _loader(images.batched(size, collation_fn=default_collate), workers)
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


def _loader(batches: Any, workers: int) -> Any:
    return webdataset.WebLoader(batches, batch_size=None, num_workers=workers, persistent_workers=True)


def version(_programs: Path) -> str:
    return metadata.version("webdataset")
