"""The packed datasets of the study: written once, in a folder that the user names."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

from shade_load import find_daemon

from studies import image_sets
from studies.accuracy.cells import PLAIN, Variant
from studies.accuracy.results import HELD_OUT, TEST

# Which labels are wrong is part of a variant, not of a run; which images are held out is the same
# for all runs.
NOISE_SEED = HELD_OUT_SEED = 0
HELD_OUT_SHARE = 0.1


def prepared(dataset: str, variant: Variant, folder: Path, split: str = TEST, record_bytes: int = 0) -> tuple[Path, Path]:
    """The packed training and validation data; made if they are not there. Imagenette's photographs are in `folder`/imagenette.

    Raises:
        image_sets.NotAvailable: The image set cannot be had.
        subprocess.CalledProcessError: It could not be packed.
    """
    name = f"{dataset}-{variant}" + (f"-{HELD_OUT}" if split == HELD_OUT else "") + (f"-{record_bytes}" if record_bytes else "")
    images = folder / name
    if not images.is_dir():
        print(f"writing {images}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        whole = dataclasses.replace(image_sets.load(dataset, folder / dataset), record_bytes=record_bytes)
        kept = whole.with_held_out(HELD_OUT_SHARE, HELD_OUT_SEED) if split == HELD_OUT else whole
        kept.with_imbalance(variant.imbalance).with_label_noise(variant.label_noise, NOISE_SEED).write(images)
    # All variants have the same validation images.
    val = images if variant == PLAIN else prepared(dataset, PLAIN, folder, split, record_bytes)[1].parent
    return _packed(images, "train"), _packed(val, "val")


def _packed(images: Path, split: str) -> Path:
    target = images / f"{split}.shade"
    # A dataset that an interrupted command left is finished; a whole one is left as it is.
    program = find_daemon().with_name("shade-pack")
    subprocess.run([program, "create", images / split, target], check=True, stdout=subprocess.DEVNULL)
    return target
