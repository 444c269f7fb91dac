"""WebDataset: its shards read in turn, with a shuffle buffer, each record decoded the fastest way."""

from importlib import metadata
from pathlib import Path
from typing import Any

import webdataset
from torch.utils.data import default_collate

from benches.rivals.decoders import Epochs, fast
from benches.rivals.kinds import Kind
from benches.rivals.writers.listing import read, samples

FOLDER = "webdataset"
# Each worker gets as many: one that has fewer than the other ends early.
SHARDS = 8
# Samples, of its documentation.
SHUFFLE_BUFFER = 1_000


def prepare(root: Path, _programs: Path, _kind: Kind) -> None:
    (root / FOLDER).mkdir()
    files = samples(root / "files")
    per_shard = -(-len(files) // SHARDS)
    with webdataset.ShardWriter(str(root / FOLDER / "%06d.tar"), maxcount=per_shard, verbose=0) as writer:
        # Dealt to the shards, so that a shard has of all classes.
        for number, (path, label) in enumerate(file for shard in range(SHARDS) for file in files[shard::SHARDS]):
            writer.write({"__key__": f"{number:09d}", "image": read(path), "cls": label})


def epochs(root: Path, workers: int, size: int, kind: Kind) -> Epochs:
    def decode(sample: dict[str, Any]) -> tuple[Any, int]:
        return fast.decode(sample["image"], kind), int(sample["cls"])

    shards = sorted(str(path) for path in (root / FOLDER).glob("*.tar"))
    images = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(SHUFFLE_BUFFER).map(decode)
    batches = images.batched(size, collation_fn=default_collate)
    loader = webdataset.WebLoader(batches, batch_size=None, num_workers=workers, persistent_workers=True)
    while True:
        yield ((images.numpy(), labels.numpy()) for images, labels in loader)


def version(_programs: Path) -> str:
    return metadata.version("webdataset")
