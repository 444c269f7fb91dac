"""What a port's loaders delivered beside the original's: lengths, classes, labels, coverage, pixels."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

from .data import Data
from .scripts import Script

# Grey levels of 255 by which a pixel may differ.
LEVEL = 1
# What rounding of floats adds to that.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Run:
    """What one run of a script delivered."""

    passes: list[dict[str, Any]]
    kept: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Run:
        """The run that an observer has written."""
        return cls(json.loads((folder / "passes.json").read_text()), torch.load(folder / "kept.pt", weights_only=True))

    def of(self, samples: int) -> list[int]:
        """The numbers of the whole passes over the split of that many samples."""
        return [at for at, one in enumerate(self.passes) if one["samples"] == samples and one["is_whole"]]


def lengths(original: Run, port: Run, samples: int) -> str | None:
    """What differs in `len`, in sizes of batches, or in the number of passes; None: nothing."""
    if len(port.of(samples)) != len(original.of(samples)):
        return f"{len(original.of(samples))} whole passes over {samples} samples, the port has {len(port.of(samples))}"
    for ours, theirs in zip(port.of(samples), original.of(samples), strict=True):
        passes = original.passes[theirs], port.passes[ours]
        told = [(one["batches"], [len(ids) for ids in one["ids"]]) for one in passes]
        if told[0] != told[1]:
            return f"batches: {told[0]}, the port has {told[1]}"
    return None if port.of(samples) else f"no whole pass over {samples} samples"


def classes(original: Run, port: Run, data: Data) -> str | None:
    """What differs in names of classes or in labels of samples; None: nothing."""
    names = [next((one["classes"] for one in run.passes if one["classes"]), None) for run in (original, port)]
    if names[0] != names[1]:
        return f"classes: {names[0]}, the port has {names[1]}"
    for split in (data.train, data.val):
        samples = len(data.index[split])
        theirs = _labels(original, samples)
        for sample, label in _labels(port, samples).items():
            expected = theirs.get(data.index[split][sample], label)
            if expected != label or data.labels[split][sample] != label:
                return f"{split}: sample {sample} has label {label}, expected {data.labels[split][sample]}"
    return None


def coverage(run: Run, samples: int, drops: bool) -> str | None:
    """What differs from every sample once in each whole pass, less a tail that is dropped; None: nothing."""
    for at in run.of(samples):
        one = run.passes[at]
        count = Counter(sample for batch in one["ids"] for sample in batch)
        expected = one["batches"] * len(one["ids"][0]) if drops else samples
        if max(count.values()) > 1 or sum(count.values()) != expected or max(count) >= samples:
            return f"pass {at}: {len(count)} of {samples} samples in {sum(count.values())} rows, expected {expected}"
    return None


def drops_tail(run: Run, samples: int) -> bool:
    """Whether its passes leave a last batch out."""
    one = run.passes[run.of(samples)[0]]
    return sum(map(len, one["ids"])) < samples


def validation_pixels(original: Run, port: Run, data: Data, script: Script) -> float:
    """The largest difference of a pixel of validation images, in levels."""
    samples = len(data.index[data.val])
    theirs, ours = (_images(run, run.of(samples), script) for run in (original, port))
    shared = [(sample, data.index[data.val][sample]) for sample in ours if data.index[data.val][sample] in theirs]
    assert shared, "both keep the first images, or all"
    return max(float((ours[sample] - theirs[other]).abs().max()) for sample, other in shared)


def training_pixels(port: Run, data: Data, script: Script) -> float:
    """The largest difference of a training pixel from torchvision's for the crop and the flip that were drawn."""
    files = data.files(data.train)
    worst = 0.0
    for at in port.of(len(files)):
        kept = port.kept[at]
        for ids, images, crops, flipped in zip(kept["ids"], kept["images"], kept["crops"], kept["flipped"], strict=True):
            for view, crop, flip in zip(images, crops, flipped, strict=True):
                for row, sample in enumerate(ids):
                    size = list(view.shape[2:])
                    expected = _cropped(files[sample], crop[row].tolist(), bool(flip[row]), size, script)
                    worst = max(worst, float((_levels(view[row], script) - expected).abs().max()))
    return worst


def _cropped(file: Path, crop: list[float], flip: bool, size: list[int], script: Script) -> torch.Tensor:
    left, top, width, height = (round(side) for side in crop)
    with Image.open(file) as image:
        # Beyond the image it is black.
        part = F.crop(image.convert("RGB"), top, left, height, width)
    if script.interpolation is not None:
        part = F.resize(part, size, InterpolationMode(script.interpolation))
    return F.pil_to_tensor(F.hflip(part) if flip else part).float()


def _images(run: Run, passes: list[int], script: Script) -> dict[int, torch.Tensor]:
    """The first view of each sample that was kept, in levels."""
    return {
        sample: _levels(images[0][row], script)
        for at in passes
        for ids, images in zip(run.kept[at]["ids"], run.kept[at]["images"], strict=True)
        for row, sample in enumerate(ids)
    }


def _levels(image: torch.Tensor, script: Script) -> torch.Tensor:
    """Bytes as they are, and floats as the levels that they were made of."""
    if image.dtype == torch.uint8:
        return image.float()
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in script.mean_std)
    return (image * std + mean) * 255


def _labels(run: Run, samples: int) -> dict[int, int]:
    return {
        sample: label
        for one in run.passes
        if one["samples"] == samples
        for ids, labels in zip(one["ids"], one["labels"], strict=True)
        if labels
        for sample, label in zip(ids, labels, strict=True)
    }
