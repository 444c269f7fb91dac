"""The packed datasets of the study: written once, in a folder that the user names."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shade_load import find_daemon

from studies import image_sets
from studies.accuracy.cells import PLAIN, Variant

# Which labels are wrong is part of a variant, not of a run.
NOISE_SEED = 0


def prepared(dataset: str, variant: Variant, folder: Path) -> tuple[Path, Path]:
    """The packed training and validation data; made if they are not there.

    Raises:
        image_sets.NotAvailable: The image set cannot be had.
        subprocess.CalledProcessError: It could not be packed.
    """
    images = folder / f"{dataset}-{variant}"
    if not images.is_dir():
        print(f"writing {images}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        changed = image_sets.load(dataset).with_imbalance(variant.imbalance)
        changed.with_label_noise(variant.label_noise, NOISE_SEED).write(images)
    # All variants have the same validation images.
    val = images if variant == PLAIN else prepared(dataset, PLAIN, folder)[1].parent
    return _packed(images, "train"), _packed(val, "val")


def _packed(images: Path, split: str) -> Path:
    target = images / f"{split}.shade"
    # A dataset that an interrupted command left is finished; a whole one is left as it is.
    program = find_daemon().with_name("shade-pack")
    subprocess.run([program, "create", images / split, target], check=True, stdout=subprocess.DEVNULL)
    return target
