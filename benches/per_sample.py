"""`python -m benches.per_sample`: a Python function of single samples, in as many processes as a DataLoader's workers.

Photographs are decoded, resized and changed by one function of Pillow and NumPy: in processes of a
Loader that delivers records, and in the workers of a DataLoader that reads files. Results are compared.
Beside them the daemon decodes and resizes, and the function only changes pixels. All bytes are in the
page cache or the daemon's: what is measured is the way of samples and results, not a store. The ways
run in turn, each as a process of its own, and tell their second epoch."""

from __future__ import annotations

import argparse
import io
import json
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from shade_load import Loader, PerSample, Sample

from benches.in_turn import PHOTOGRAPH, Told, Way, arguments_of, photograph, run_in_turn, second_epoch, table
from benches.recorded import Record, options, pack, write
from benches.rivals.report import Start

SIDE = 224
BATCH = 64
FILES, RECORDS, IMAGES = "DataLoader", "PerSample, records", "PerSample, images of the daemon"
WAYS = (FILES, RECORDS, IMAGES)
# What daemons have in no transform: the levels of each colour by a table of its own.
TABLE = np.stack([np.sqrt(np.arange(256) * 255), np.arange(256) // 32 * 32, np.arange(255, -1, -1)]).astype(np.uint8)


def changed(pixels: Any) -> Any:
    """Pixels, height x width x 3, with other levels."""
    return np.stack([TABLE[colour][pixels[..., colour]] for colour in range(3)])


def decoded(content: bytes) -> Any:
    """A photograph's bytes to 3 x SIDE x SIDE."""
    image = Image.open(io.BytesIO(content)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return changed(np.asarray(image))


def of_record(sample: Sample) -> Any:
    """For a Loader of records."""
    return decoded(sample.record or b""), sample.id


def of_image(sample: Sample) -> Any:
    """For a Loader of images."""
    return changed(sample.image), sample.id


class Files:
    """A dataset of files for a DataLoader."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        return decoded(self.files[index].read_bytes()), index


def main() -> int:
    """Measures, prints the report, writes the record; returns the exit status."""
    arguments = arguments_of(options("benches.per_sample", __doc__.splitlines()[0]), 4_000)
    if arguments.one:
        way, folder, out = arguments.one
        Path(out).write_text(json.dumps(_one(way, Path(folder), arguments.workers)))
        return 0
    return write("per-sample", arguments.out, partial(_measure, arguments), _report)


def _measure(arguments: argparse.Namespace, scratch: Path, start: Start) -> Record:
    _write(scratch / "photographs", arguments.samples)
    pack(scratch / "photographs", scratch / "packed")
    runs = run_in_turn("benches.per_sample", WAYS, arguments, scratch)
    if len({run["digest"] for way in (FILES, RECORDS) for run in runs[way]}) != 1:
        raise OSError("the results of a DataLoader and of PerSample over records differ")
    rows = [{"way": way, "runs": of_way} for way, of_way in runs.items()]
    return {**start.finish({}, rows), "samples": arguments.samples, "workers": arguments.workers}


def _report(record: Record) -> str:
    lines = [
        f"# A Python function of {record['samples']:,} photographs, {record['workers']} processes",
        "",
        f"{PHOTOGRAPH[0]} x {PHOTOGRAPH[1]} to {SIDE} x {SIDE}, batches of {BATCH}, second epoch. Medians of "
        f"{len(record['rows'][0]['runs'])} runs.",
        "",
    ]
    return "\n".join([*lines, *table(record, FILES), "    " + record["command"], ""])


def _one(way: str, folder: Path, workers: int) -> Told:
    """The second epoch of one way, in this process."""
    digest = 0

    def look(batch: Any) -> None:
        nonlocal digest
        images, ids = batch
        assert images.shape[1:] == (3, SIDE, SIDE)
        # All results, in any order.
        for image, sample in zip(images.numpy(), ids.tolist(), strict=True):
            digest ^= zlib.crc32(image.tobytes(), sample)

    measured = _data_loader(folder, workers) if way == FILES else _loader(way, folder, workers)
    return {**second_epoch(measured, look, lambda batch: len(batch[0])), "digest": digest}


def _loader(way: str, folder: Path, workers: int) -> Way:
    of_images, function = way == IMAGES, of_image if way == IMAGES else of_record
    size = (SIDE, SIDE) if of_images else None
    loader = Loader(folder / "packed", BATCH, image_size=size, transform=PerSample(function, workers=workers))
    return Way(lambda: (batch.images for batch in loader), loader.close, (loader.daemon_pid,))


def _data_loader(folder: Path, workers: int) -> Way:
    import torch

    files = Files(sorted((folder / "photographs").glob("*/*.jpg")))
    given = {"shuffle": True, "num_workers": workers, "persistent_workers": True}
    loader: Any = torch.utils.data.DataLoader(files, BATCH, **given)  # type: ignore[arg-type]
    return Way(lambda: iter(loader))


def _write(folder: Path, samples: int) -> None:
    (folder / "all").mkdir(parents=True)
    draw = np.random.default_rng(0)
    for number in range(samples):
        photograph(draw).save(folder / "all" / f"{number:06}.jpg", quality=90)


if __name__ == "__main__":
    sys.exit(main())
