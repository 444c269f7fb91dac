"""Which rival does what: the rows of every comparison, and the function that each row measures.

A key is what `--only` takes, and the rival's name in a record. A title begins the name of a row in
a record. Records are compared over time: keys and titles stay as they are."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benches.rivals.kinds import Kind


@dataclass(frozen=True)
class Row:
    """One row of a comparison. `run` and `prepare` are MODULE.FUNCTION in `systems`."""

    title: str
    run: str
    # Makes what `run` reads. Empty: `run` reads the files themselves.
    prepare: str = ""
    # Workers (processes, or threads) where the command line does not say.
    workers: int = 0
    # `run` leaves decoding to its user and gets `fast_decoder`.
    fast: bool = False
    # The versions' key in a record, where several rows share one. Empty: the row's own key.
    version_key: str = ""
    # By kind of images, the steps that the system lacks: it is measured without them.
    without: dict[str, str] = field(default_factory=dict)


SHARDS, MARKED = "shade_pack.prepare_shards", "shade_pack.prepare_restart_markers"

PACK = {
    "shade_nosync": Row("shade-pack create --no-sync", "shade_pack.pack_without_sync"),
    "shade": Row("shade-pack create", "shade_pack.pack"),
    "ffcv": Row("FFCV DatasetWriter", "ffcv.pack"),
    "mosaicml": Row("MosaicML Streaming MDSWriter", "mosaicml.pack"),
    "litdata": Row("LitData optimize", "litdata.pack"),
    "webdataset": Row("WebDataset ShardWriter", "webdataset.pack"),
}

READ = {
    "shade": Row("shade Loader", "shade.read", SHARDS),
    "shade_filling": Row("shade Loader, filling a cache", "shade.read_and_keep", SHARDS),
    "files_2": Row("ImageFolder, 2 workers", "torch_dataloader.read", workers=2, version_key="files"),
    "files_8": Row("ImageFolder, 8 workers", "torch_dataloader.read", workers=8, version_key="files"),
    "webdataset": Row("WebDataset, 2 workers", "webdataset.read", SHARDS, workers=2),
    "dali": Row("DALI of shards, 2 threads", "dali.read_shards", "dali.prepare_shards", workers=2),
    "dali_files": Row("DALI of files, 2 threads", "dali.read_files", workers=2),
    "spdl": Row("SPDL of files, 2 threads", "spdl.read", workers=2),
    "ffrecord": Row("FFRecord, 2 workers", "ffrecord.read", "ffrecord.prepare", workers=2),
    "preadv": Row("preadv x 32, a stand-in", "preadv.read", "preadv.prepare", workers=32),
}

DECODE = {
    "shade": Row("shade Loader", "shade.decode", "shade_pack.prepare_to_decode"),
    "shade_marked": Row("shade Loader, restart markers", "shade.decode_restart_markers", MARKED),
    "imagefolder": Row("ImageFolder, PIL", "torch_dataloader.decode"),
    "imagefolder_fast": Row("ImageFolder, fast decoder", "torch_dataloader.decode_fast", fast=True),
    "webdataset": Row("WebDataset, fast decoder", "webdataset.decode", "webdataset.prepare", fast=True),
    "mosaicml": Row("MosaicML Streaming, fast decoder", "mosaicml.decode", "mosaicml.prepare", fast=True),
    "litdata": Row("LitData, fast decoder", "litdata.decode", "litdata.prepare", fast=True),
    "spdl_fast": Row("SPDL, fast decoder", "spdl.decode_fast", fast=True),
    "spdl": Row("SPDL, its FFmpeg", "spdl.decode"),
    "dali": Row("DALI, CPU", "dali.decode"),
    "ffcv": Row("FFCV, its own file", "ffcv.decode", "ffcv.prepare"),
}

AUGMENT = {
    "shade": Row("shade Loader", "shade.decode", "shade_pack.prepare_to_decode"),
    "imagefolder": Row("ImageFolder, PIL", "torch_dataloader.decode"),
    "timm": Row("timm's transforms and collate", "timm_loader.augment"),
    "dali": Row("DALI, CPU", "dali.augment"),
    "ffcv": Row("FFCV, its own file", "ffcv.augment", "ffcv.prepare"),
}

# What DALI's nearest operators do not do.
JITTERED_BY_DALI = "a drawn order of the jitter, contrast about the image's mean"
WITHOUT_IN_DALI = {
    "deit3": f"{JITTERED_BY_DALI}, Pillow's blur by boxes",
    "convnext": "the deviation of magnitudes, the bicubic filter of moved images, noise in erased parts",
    "dinov2": JITTERED_BY_DALI,
    "simclr": JITTERED_BY_DALI,
}

RECIPES = {
    "shade": Row("shade Loader", "shade.recipe", "shade_pack.prepare_to_decode"),
    "imagefolder": Row("ImageFolder, PIL", "torch_dataloader.recipe"),
    "timm": Row("timm's create_loader", "timm_loader.recipe"),
    "spdl": Row("SPDL, its FFmpeg, PIL", "spdl.recipe"),
    "dali": Row("DALI, CPU", "dali.recipe", without=WITHOUT_IN_DALI),
}

TRAIN = {
    "shade": Row("shade Loader", "shade.train", SHARDS),
    "shade_marked": Row("shade Loader, restart markers", "shade.train_restart_markers", MARKED),
    "imagefolder": Row("ImageFolder, PIL", "torch_dataloader.train"),
    "imagefolder_fast": Row("ImageFolder, fast decoder", "torch_dataloader.train_fast", fast=True),
}


def decoding(kind: Kind) -> dict[str, Row]:
    """The rows of a comparison of decoded batches of this kind."""
    if kind.views:
        return RECIPES
    return AUGMENT if kind.augments else DECODE


def load(name: str) -> Callable[..., Any]:
    """Imports MODULE.FUNCTION. Raises ImportError or OSError where the rival is not installed."""
    module, function = name.split(".")
    return getattr(importlib.import_module(f"benches.rivals.systems.{module}"), function)


def prepare(row: Row, root: Path, *arguments: Any) -> str:
    """Makes what the row reads below `root`; returns the folder's name."""
    return load(row.prepare)(root, *arguments) if row.prepare else "files"


def version(row: Row, programs: Path) -> str:
    """The version of what the row measures, and of the decoder that it is given."""
    found = load(f"{row.run.split('.')[0]}.version")(programs)
    if not row.fast:
        return found
    from benches.rivals import fast_decoder

    return f"{found}, {fast_decoder.version()}"
