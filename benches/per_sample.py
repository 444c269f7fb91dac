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
import os
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from shade_load import Loader, PerSample, Sample

from benches.recorded import Record, options, pack, write
from benches.rivals.process_tree import below, cpu_seconds
from benches.rivals.report import Start

SIDE = 224
PHOTOGRAPH = (500, 375)
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
    parser = options("benches.per_sample", __doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4_000, help="photographs (default 4000)")
    parser.add_argument("--workers", type=int, default=2, help="processes of each way (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default 3)")
    parser.add_argument("--one", nargs=3, metavar=("WAY", "FOLDER", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        way, folder, out = arguments.one
        Path(out).write_text(json.dumps(_one(way, Path(folder), arguments.workers)))
        return 0
    return write("per-sample", arguments.out, partial(_measure, arguments), _report)


def _measure(arguments: argparse.Namespace, scratch: Path, start: Start) -> Record:
    _write(scratch / "photographs", arguments.samples)
    pack(scratch / "photographs", scratch / "packed")
    told = scratch / "told.json"
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for number in range(arguments.rounds):
        for way in WAYS:
            more = ["--workers", arguments.workers, "--one", way, scratch, told]
            command = [sys.executable, "-m", "benches.per_sample", *more]
            subprocess.run(list(map(str, command)), check=True)
            runs[way].append(json.loads(told.read_text()))
            print(f"{number + 1}, {way}: {runs[way][-1]['samples_per_second']:.0f} samples/s", file=sys.stderr)
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
        f"| | samples/s | beside {FILES} | CPU of all processes, ms a sample | of the training's, ms a batch |",
        "|---|---:|---:|---:|---:|",
    ]
    rates = {row["way"]: statistics.median(run["samples_per_second"] for run in row["runs"]) for row in record["rows"]}
    for row in record["rows"]:
        cpu = [statistics.median(run[name] for run in row["runs"]) for name in ("cpu_ms_a_sample", "cpu_ms_a_batch")]
        rate = rates[row["way"]]
        lines.append(f"| {row['way']} | {rate:,.0f} | {rate / rates[FILES]:.2f} x | {cpu[0]:.2f} | {cpu[1]:.2f} |")
    return "\n".join([*lines, "", "    " + record["command"], ""])


def _one(way: str, folder: Path, workers: int) -> dict[str, Any]:
    """The second epoch of one way, in this process."""
    epoch, end, daemons = _data_loader(folder, workers) if way == FILES else _loader(way, folder, workers)
    digest = 0
    for images, ids in epoch():
        # All results, in any order.
        for image, sample in zip(images.numpy(), ids.tolist(), strict=True):
            digest ^= zlib.crc32(image.tobytes(), sample)
    begun, own, of_all, count, batches = time.monotonic(), time.process_time(), _cpu_seconds(daemons), 0, 0
    for images, _ in epoch():
        assert images.shape[1:] == (3, SIDE, SIDE)
        count, batches = count + len(images), batches + 1
    seconds, own, of_all = time.monotonic() - begun, time.process_time() - own, _cpu_seconds(daemons) - of_all
    end()
    cpu = {"cpu_ms_a_batch": 1e3 * own / batches, "cpu_ms_a_sample": 1e3 * of_all / count}
    return {"samples_per_second": count / seconds, **cpu, "samples": count, "digest": digest}


def _cpu_seconds(daemons: list[int]) -> float:
    """CPU time of this process, of those that it has started, and of daemons, which may be among them."""
    here = os.getpid()
    return sum(map(cpu_seconds, {here, *daemons} - set(below(here))))


def _loader(way: str, folder: Path, workers: int) -> tuple[Callable[[], Iterator[Any]], Callable[[], None], list[int]]:
    of_images, function = way == IMAGES, of_image if way == IMAGES else of_record
    size = (SIDE, SIDE) if of_images else None
    loader = Loader(folder / "packed", BATCH, image_size=size, transform=PerSample(function, workers=workers))
    return lambda: (batch.images for batch in loader), loader.close, [loader.daemon_pid]


def _data_loader(folder: Path, workers: int) -> tuple[Callable[[], Iterator[Any]], Callable[[], None], list[int]]:
    import torch

    files = Files(sorted((folder / "photographs").glob("*/*.jpg")))
    given = {"shuffle": True, "num_workers": workers, "persistent_workers": True}
    loader: Any = torch.utils.data.DataLoader(files, BATCH, **given)  # type: ignore[arg-type]
    return lambda: iter(loader), lambda: None, []


def _write(folder: Path, samples: int) -> None:
    """Much like photographs: large soft shapes and a little grain."""
    (folder / "all").mkdir(parents=True)
    draw = np.random.default_rng(0)
    for number in range(samples):
        soft = Image.fromarray(draw.integers(0, 256, (5, 7, 3), np.uint8)).resize(PHOTOGRAPH, Image.Resampling.BICUBIC)
        grain = draw.integers(-12, 13, (PHOTOGRAPH[1] // 2, PHOTOGRAPH[0] // 2, 1)).repeat(2, 0).repeat(2, 1)
        picture = np.asarray(soft).astype(np.int16)
        rows = min(grain.shape[0], picture.shape[0])
        picture[:rows, : grain.shape[1]] += grain[:rows]
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(folder / "all" / f"{number:06}.jpg", quality=90)


if __name__ == "__main__":
    sys.exit(main())
