"""`python -m benches.captions`: batches with a caption for each sample, on a store of 2 ms an operation.

Loaders over one packed dataset: images alone, with captions that come along, and with captions that
the training process asks for. Beside them a DataLoader that reads two files for each sample. All are
cold, without a cache, and nothing is decoded: the store is what is measured. They run in turn, each
as a process of its own with a mount of its own."""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benches.recorded import Record, mounted, options, write
from benches.rivals.report import Start

DELAY_US = 2_000
AT_ONCE = 256
IMAGE_BYTES = 20_000
CAPTION_BYTES = 100
BATCH = 256
IMAGES, ALONG, ASKED = "images alone", "fields=('txt',)", "batch.fields()"
WAYS = (IMAGES, ALONG, ASKED, "DataLoader, 8 workers", "DataLoader, 32 workers")


def main() -> int:
    """Measures, prints the report, writes the record; returns the exit status."""
    parser = options("benches.captions", __doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20_000, help="images with a caption each (default 20000)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each way (default 3)")
    parser.add_argument("--only", action="append", choices=WAYS, help="a way beside images alone, again for more (default all)")
    parser.add_argument("--one", nargs=3, metavar=("WAY", "FOLDER", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        way, folder, out = arguments.one
        Path(out).write_text(json.dumps(_one(way, Path(folder))))
        return 0
    return write("captions", arguments.out, partial(_measure, arguments), _report)


def _measure(arguments: argparse.Namespace, scratch: Path, start: Start) -> Record:
    store, source = mounted(arguments.programs, DELAY_US, AT_ONCE, scratch), scratch / "data"
    _write(source, scratch / "tars", arguments.samples)
    packer = arguments.programs / "shade-pack"
    subprocess.run([packer, "create", "--quiet", scratch / "tars", source / "packed"], check=True)
    told = scratch / "told.json"
    ways = [IMAGES, *(way for way in arguments.only or WAYS if way != IMAGES)]
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for number in range(arguments.rounds):
        for way in ways:

            def command(folder: Path, way: str = way) -> list[Any]:
                return [sys.executable, "-m", "benches.captions", "--one", way, folder, told]

            operations = store.run(source, command)
            runs[way].append({**json.loads(told.read_text()), "operations": operations})
            print(f"{number + 1}, {way}: {runs[way][-1]['samples_per_second']:.0f} samples/s", file=sys.stderr)
    rows = [{"way": way, "runs": of_way} for way, of_way in runs.items()]
    return {**start.finish({}, rows), "store": str(store), "samples": arguments.samples}


def _report(record: Record) -> str:
    lines = [
        f"# Captions with images: {record['samples']:,} of {IMAGE_BYTES:,} bytes, cold",
        "",
        f"{record['store']} Batches of {BATCH}, no cache. Medians of {len(record['rows'][0]['runs'])} runs.",
        "",
        "| | samples/s | time of a batch, beside images alone | reads a sample |",
        "|---|---:|---:|---:|",
    ]
    rates = {row["way"]: statistics.median(run["samples_per_second"] for run in row["runs"]) for row in record["rows"]}
    for row in record["rows"]:
        reads = statistics.median(run["operations"].get("read", 0) for run in row["runs"]) / record["samples"]
        way = row["way"]
        lines.append(f"| {way} | {rates[way]:,.0f} | {rates[IMAGES] / rates[way]:.2f} x | {reads:.2f} |")
    return "\n".join([*lines, "", "    " + record["command"], ""])


def _one(way: str, folder: Path) -> dict[str, Any]:
    """An epoch of one way, in this process."""
    batches, end = _data_loader(folder / "files", int(way.split()[1])) if "DataLoader" in way else _loader(way, folder)
    begun, count, last = time.monotonic(), 0, 0.0
    for captions in batches:
        assert all(len(caption) == CAPTION_BYTES for caption in captions) or way == IMAGES
        count += len(captions)
        last = time.monotonic()
    end()
    return {"samples_per_second": count / (last - begun), "samples": count}


def _loader(way: str, folder: Path) -> tuple[Iterator[list[bytes]], Callable[[], None]]:
    """Captions by batch, and the end: a mount that the daemon reads from cannot be taken away."""
    from shade_load import Loader

    loader = Loader(folder / "packed", BATCH, cache=0, fields=("txt",) if way == ALONG else None)
    daemon = Path(f"/proc/{loader.daemon_pid}")

    def captions() -> Iterator[list[bytes]]:
        for batch in loader:
            if way == ALONG:
                yield batch["txt"]
            else:
                yield [fields["txt"] for fields in batch.fields()] if way == ASKED else [b""] * len(batch)

    def end() -> None:
        loader.close()
        while daemon.exists():
            time.sleep(0.05)

    return captions(), end


def _data_loader(folder: Path, workers: int) -> tuple[Iterator[list[bytes]], Callable[[], None]]:
    import torch

    names = sorted(path.stem for path in folder.glob("*.jpg"))

    class Pairs(torch.utils.data.Dataset[tuple[bytes, bytes]]):
        def __len__(self) -> int:
            return len(names)

        def __getitem__(self, index: int) -> tuple[bytes, bytes]:
            path = folder / names[index]
            return path.with_suffix(".jpg").read_bytes(), path.with_suffix(".txt").read_bytes()

    # Threads of torch in each worker would only be in each other's way.
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Pairs(), BATCH, shuffle=True, num_workers=workers, collate_fn=list)
    return ([caption for _, caption in pairs] for pairs in loader), lambda: None


def _write(source: Path, tars: Path, samples: int) -> None:
    """Pairs of files, and the same as tars."""
    files = source / "files"
    files.mkdir(parents=True)
    tars.mkdir()
    draw = random.Random(0)
    with tarfile.open(tars / "0.tar", "w") as tar:
        for number in range(samples):
            image = b"\xff\xd8\xff\xe0" + draw.randbytes(IMAGE_BYTES - 4)
            caption = (f"a photograph of number {number} " * 10)[:CAPTION_BYTES].encode()
            for ending, content in (("jpg", image), ("txt", caption)):
                (files / f"{number:06}.{ending}").write_bytes(content)
                member = tarfile.TarInfo(f"{number:06}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    sys.exit(main())
