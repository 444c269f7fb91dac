"""`python -m benches.whole_samples`: masks and boxes, mixtures, and buckets of aspect ratios, beside a DataLoader.

Each is what a Loader does with one option, and what a DataLoader does with the code that people write for
it: torchvision's v2 over `tv_tensors`, a WeightedRandomSampler over two datasets, a batch sampler over
lists of images by their ratio. All bytes are in the page cache or the daemon's: what is measured is the
work, not a store. The two run in turn, each as a process of its own, and tell their second epoch."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from shade_load import Loader, Plan, Writer, bucket_sizes
from torch.utils.data import ConcatDataset, DataLoader, Dataset, WeightedRandomSampler
from torchvision import tv_tensors
from torchvision.transforms import v2

from benches.in_turn import Told, Way, arguments_of, photograph, run_in_turn, second_epoch, table
from benches.recorded import Record, options, write
from benches.rivals.report import Start

SIDE = 224
BATCH = 64
KINDS = ("masks", "mixtures", "buckets")
FILES, SHADE = "DataLoader", "shade"
SHARES = (0.7, 0.3)
SIZES = bucket_sizes(SIDE, 32)
# Wide, square and tall ones.
PHOTOGRAPHS = ((500, 375), (400, 400), (375, 500))
CROPS = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip(), v2.SanitizeBoundingBoxes()])


class Files(Dataset[Any]):
    """Files of a folder, as each kind wants them."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.files, self.kind = sorted(folder.glob("*.jpg")), kind

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        path = self.files[index]
        image = Image.open(path).convert("RGB")
        if self.kind == "buckets":
            return _covered(image, SIZES[nearest(image.size)])
        if self.kind == "mixtures":
            return _covered(image, (SIDE, SIDE)), int(path.parent.name)
        boxes = np.load(path.with_suffix(".boxes.npy"))
        size = (image.height, image.width)
        target = {
            "mask": tv_tensors.Mask(Image.open(path.with_suffix(".mask.png"))),
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size),  # type: ignore[call-overload]
            "labels": torch.arange(len(boxes)),
        }
        return CROPS(tv_tensors.Image(image), target)


class ByRatio:
    """Batches of one ratio each, in random order."""

    def __init__(self, files: Files) -> None:
        self.lists: dict[int, list[int]] = defaultdict(list)
        for index, path in enumerate(files.files):
            with Image.open(path) as image:
                self.lists[nearest(image.size)].append(index)

    def __iter__(self) -> Iterator[list[int]]:
        batches = []
        for indices in self.lists.values():
            random.shuffle(indices)
            batches += [indices[start : start + BATCH] for start in range(0, len(indices), BATCH)]
        random.shuffle(batches)
        return iter(batches)


def nearest(size: tuple[int, int]) -> int:
    """The bucket of an image of this width and height."""
    ratio = size[0] / size[1]
    far = [max(ratio * height / width, width / (ratio * height)) for height, width in SIZES]
    return far.index(min(far))


def main() -> int:
    """Measures, prints the report, writes the record; returns the exit status."""
    parser = options("benches.whole_samples", __doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=KINDS, help="again for more (default all)")
    arguments = arguments_of(parser, 4_000)
    if arguments.one:
        way, folder, out = arguments.one
        Path(out).write_text(json.dumps(_one(way, Path(folder), arguments.workers)))
        return 0
    return write("whole-samples", arguments.out, partial(_measure, arguments), _report)


def _measure(arguments: argparse.Namespace, scratch: Path, start: Start) -> Record:
    kinds = {}
    for kind in arguments.kind or KINDS:
        folder = scratch / kind
        _write(folder, kind, arguments.samples)
        runs = run_in_turn("benches.whole_samples", (FILES, SHADE), arguments, folder)
        kinds[kind] = [{"way": way, "runs": of_way} for way, of_way in runs.items()]
    rows = [{"kind": kind, **row} for kind, of_kind in kinds.items() for row in of_kind]
    return {**start.finish({}, rows), "samples": arguments.samples, "workers": arguments.workers}


def _report(record: Record) -> str:
    runs = len(record["rows"][0]["runs"])
    lines = [
        f"# Whole samples: {record['samples']:,} photographs, {record['workers']} processes of a DataLoader",
        "",
        f"Batches of {BATCH}, second epoch. Medians of {runs} runs.",
    ]
    for kind in dict.fromkeys(row["kind"] for row in record["rows"]):
        of_kind = [row for row in record["rows"] if row["kind"] == kind]
        lines += ["", f"## {kind.capitalize()}", ""]
        lines += [f"- {row['way']}: {row['runs'][0]['what']}" for row in of_kind]
        lines += ["", *table({**record, "rows": of_kind}, FILES)]
    return "\n".join([*lines, "    " + record["command"], ""])


def _one(way: str, folder: Path, workers: int) -> Told:
    """The second epoch of one way, in this process."""
    kind = folder.name
    seen: Counter[Any] = Counter()

    def look(batch: Any) -> None:
        images = batch if kind == "buckets" else batch[0]
        assert images.dtype == torch.uint8
        if kind == "masks":
            assert batch[1].shape == (len(images), SIDE, SIDE)
            seen["boxes"] += len(batch[2])
        elif kind == "mixtures":
            seen[f"{int(batch[1].sum())} of {len(images)}"] += 1
        else:
            assert tuple(images.shape[-2:]) in SIZES
            seen["pixels"] += images.numel() // 3
        seen["images"] += len(images)

    measured = (_data_loader if way == FILES else _loader)(kind, folder, workers)
    told = second_epoch(measured, look, lambda batch: len(batch if kind == "buckets" else batch[0]))
    of_first = {str(name): count for name, count in sorted(seen.items(), key=str) if name != "images"}
    if kind == "mixtures":
        parts = [int(text.split()[0]) for text in of_first if text.endswith(f" of {BATCH}")]
        what = f"{min(parts)} to {max(parts)} of {BATCH} rows are of the second dataset ({SHARES[1] * BATCH:g} asked for)"
    else:
        [(name, count)] = of_first.items()
        what = f"{count / seen['images']:,.1f} {name} an image"
    return {**told, "what": what}


def _loader(kind: str, folder: Path, _workers: int) -> Way:
    if kind == "masks":
        given = {"fields": {"mask.png": "mask", "boxes.npy": "boxes[xyxy]"}}
        loader = Loader(folder / "packed.shade", BATCH, decode=list(CROPS.transforms[:2]), **given)
        batches = lambda: ((batch.images, batch["mask.png"], batch["boxes.npy"].values) for batch in loader)  # noqa: E731
    elif kind == "mixtures":
        # The index of both is written there.
        os.environ["XDG_CACHE_HOME"] = str(folder)
        parts = [(folder / f"packed-{part}.shade", share) for part, share in enumerate(SHARES)]
        loader = Loader(parts, BATCH, image_size=SIDE, plan=Plan(epoch_length="first"))
        batches = lambda: ((batch.images, batch.parts) for batch in loader)  # type: ignore[assignment,misc]  # noqa: E731
    else:
        loader = Loader(folder / "packed.shade", BATCH, plan=Plan(bucket=SIZES))
        batches = lambda: (batch.images for batch in loader)  # type: ignore[assignment,misc]  # noqa: E731
    return Way(batches, loader.close, (loader.daemon_pid,))


def _data_loader(kind: str, folder: Path, workers: int) -> Way:
    # Threads of torch in each worker would only be in each other's way.
    torch.set_num_threads(1)
    given: dict[str, Any] = {"num_workers": workers, "persistent_workers": True}
    if kind == "masks":
        files = Files(folder, kind)
        loader: Any = DataLoader(files, BATCH, shuffle=True, collate_fn=_collated, **given)
    elif kind == "mixtures":
        parts = [Files(folder / str(part), kind) for part in range(2)]
        weights = [share / len(part) for part, share in zip(parts, SHARES, strict=True) for _ in range(len(part))]
        sampler = WeightedRandomSampler(weights, int(len(parts[0]) / SHARES[0]))
        loader = DataLoader(ConcatDataset(parts), BATCH, sampler=sampler, **given)
    else:
        files = Files(folder, kind)
        loader = DataLoader(files, batch_sampler=ByRatio(files), **given)
    return Way(lambda: iter(loader))


def _collated(rows: list[Any]) -> Any:
    boxes = torch.cat([target["boxes"].as_subclass(torch.Tensor) for _, target in rows])
    return torch.stack([image for image, _ in rows]), torch.cat([target["mask"] for _, target in rows]), boxes


def _covered(image: Image.Image, size: tuple[int, int]) -> torch.Tensor:
    """The middle of the image, resized so that it just covers a size."""
    scale = max(size[0] / image.height, size[1] / image.width)
    height, width = max(round(image.height * scale), size[0]), max(round(image.width * scale), size[1])
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size[1]) // 2, (height - size[0]) // 2
    pixels = np.asarray(resized.crop((left, top, left + size[1], top + size[0])))
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def _write(folder: Path, kind: str, samples: int) -> None:
    """The same samples as files and packed."""
    draw = np.random.default_rng(0)
    for part in range(2 if kind == "mixtures" else 1):
        files = folder / str(part) if kind == "mixtures" else folder
        files.mkdir(parents=True)
        packed = folder / (f"packed-{part}.shade" if kind == "mixtures" else "packed.shade")
        with Writer(packed, classes=["all"]) as writer:
            for number in range(samples // (1 if kind != "mixtures" else 2)):
                image = photograph(draw, PHOTOGRAPHS[number % 3 if kind == "buckets" else 0])
                path = files / f"{number:06}.jpg"
                image.save(path, quality=90)
                fields: dict[str, Any] = {}
                if kind == "masks":
                    levels = draw.integers(0, 20, (8, 10), np.uint8)
                    mask = Image.fromarray(levels).resize(image.size, Image.Resampling.NEAREST)
                    mask.save(path.with_suffix(".mask.png"))
                    corners = np.sort(draw.uniform(0, 375, (5, 2, 2)), axis=1).reshape(5, 4).astype(np.float32)
                    np.save(path.with_suffix(".boxes.npy"), corners)
                    fields = {"mask": mask, "boxes": corners}
                writer.add(image=path.read_bytes(), label=0, **fields)


if __name__ == "__main__":
    sys.exit(main())
