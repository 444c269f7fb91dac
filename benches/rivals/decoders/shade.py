"""Our own, as a user would call it, with room in its cache for all records: as the others have the page cache."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shade_load
import torch  # noqa: F401  The Loader would import it when it is made; the others' modules have.

from benches.rivals.decoders import Batch, Epochs
from benches.rivals.kinds import RATIO, SCALE, Kind
from benches.rivals.readers import shards

FOLDER = shards.FOLDER
# In the page cache before the clock starts, as the others' modules are.
shade_load.find_daemon().read_bytes()


def prepare(root: Path, programs: Path, kind: Kind) -> None:
    shards.prepare(root, programs, FOLDER, *(("--format", "raw") if kind.raw else ()))


def epochs(root: Path, workers: int, size: int, kind: Kind, folder: str = FOLDER) -> Epochs:
    dataset = root / folder
    with shade_load.Loader(
        dataset,
        size,
        cache="100%",
        plan=shade_load.Plan(sampler="uniform"),
        daemon=shade_load.Daemon(workers=workers),
        **_decoding(kind),
    ) as loader:
        while True:
            yield _epoch(loader)


def _decoding(kind: Kind) -> dict[str, Any]:
    if not kind.crops:
        # As they are stored, and as FFCV delivers them.
        return {"image_size": kind.side, "channels_last": True}
    # Here, so that a version without them still has the small images measured.
    from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop

    return {"decode": [RandomResizedCrop(kind.side, scale=SCALE, ratio=RATIO), RandomHorizontalFlip()]}


def _epoch(loader: shade_load.Loader) -> Iterator[Batch]:
    for batch in loader:
        # In memory, channels are where they were asked for; to PyTorch they are always the second dimension.
        images = batch.images.numpy()
        yield images if images.flags.c_contiguous else images.transpose(0, 2, 3, 1), batch.labels.numpy()


def version(_programs: Path) -> str:
    return shade_load.__version__
