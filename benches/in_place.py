"""`python -m benches.in_place --programs target/release`: a folder of files that was not packed, on a store of 2 ms an operation.

A Loader on the folder makes its index, reads an epoch file by file, and one from its cache. Beside it
a DataLoader over torchvision's ImageFolder with 4 and 32 workers, and a Loader on the same images
packed. Nothing is decoded: the store is what is measured. Each run is a process of its own with a
mount of its own, so nothing that another has asked for is cached for it."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

DELAY_US = 2_000
CLASSES = 50
FILE_BYTES = 10_000
BATCH = 256
EPOCHS = 2
WAYS = ("folder, first start", "folder, next start", "packed", "DataLoader, 4 workers", "DataLoader, 32 workers")


def main() -> int:
    """Measures, prints a table, writes the record; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benches.in_place", description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, required=True, help="folder of shade-pack, shade-load and shade-slow-store")
    parser.add_argument("--out", type=Path, help="file of the record (default: one in benches/record, by date)")
    parser.add_argument("--files", type=int, default=50_000, help="images in the folder (default 50000)")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(_one(arguments.one[0], Path(arguments.one[1]))))
        return 0
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    out = arguments.out or Path(__file__).parent / "record" / f"{date}-in-place.json"
    load_before = os.getloadavg()
    try:
        with tempfile.TemporaryDirectory(prefix="shade-in-place-") as folder:
            rows = _measure(Path(folder), arguments)
    except KeyboardInterrupt:
        return 130
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for row in rows:
        rates = " ".join(f"{rate:8.0f}" for rate in row["samples_per_second"])
        print(f"{row['way']:24} {row['first_batch_seconds']:7.2f} s to the first batch, samples/s by epoch {rates}")
    record = {
        "bench": "in_place",
        "date": date,
        "version": _told([arguments.programs / "shade-pack", "--version"]),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "load": {"before": load_before, "after": os.getloadavg()},
        "delay_us": DELAY_US,
        "files": arguments.files,
        "file_bytes": FILE_BYTES,
        "batch": BATCH,
        "rows": rows,
    }
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written: {out}")
    return 0


def _measure(folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    source, mount = folder / "store", folder / "mount"
    _write_images(source / "images", arguments.files)
    mount.mkdir()
    # A folder that was changed just now may change again within a tick of its clock, and is indexed
    # anew.
    time.sleep(2)
    programs = arguments.programs.resolve()
    packing = [programs / "shade-pack", "create", "--quiet", "--no-sync", source / "images", source / "packed"]
    subprocess.run(packing, check=True, stdout=subprocess.DEVNULL)
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "SHADE_PACK_BIN": str(programs / "shade-pack"),
        "SHADE_LOAD_BIN": str(programs / "shade-load"),
    }
    words = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    rows = []
    for way in WAYS:
        told = folder / "told.json"
        store = [programs / "shade-slow-store", "--delay-us", str(DELAY_US), "--out", told, source, mount, "--"]
        script = [sys.executable, "-m", "benches.in_place", "--programs", programs, "--one", way, mount]
        ran = subprocess.run([*words, *store, *script], env=environment, check=True, stdout=subprocess.PIPE, text=True)
        rows.append({"way": way, **json.loads(ran.stdout.splitlines()[-1]), "store": json.loads(told.read_text())})
        print(f"{way}: {rows[-1]['samples_per_second']}", file=sys.stderr)
    return rows


def _one(way: str, mount: Path) -> dict[str, Any]:
    """Epochs of one way, in this process."""
    started = time.monotonic()
    if way.startswith("DataLoader"):
        epochs, samples = _data_loader(mount / "images", int(way.split()[1]))
        ended = None
    else:
        epochs, samples, ended = _loader(mount / ("packed" if way == "packed" else "images"))
    first, rates = 0.0, []
    for _ in range(EPOCHS):
        begun, count = time.monotonic(), 0
        for got in epochs():
            first = first or time.monotonic() - started
            count += got
        if count != samples:
            raise OSError(f"{way}: {count} samples of {samples} came")
        rates.append(samples / (time.monotonic() - begun))
    if ended is not None:
        ended()
    return {"first_batch_seconds": first, "samples_per_second": rates}


def _loader(dataset: Path) -> tuple[Callable[[], Iterable[int]], int, Callable[[], None]]:
    """Its epochs, its samples, and its end: a mount that the daemon reads from cannot be taken away."""
    from shade_load import Loader

    loader = Loader(dataset, BATCH)
    daemon = Path(f"/proc/{loader.daemon_pid}")

    def end() -> None:
        loader.close()
        while daemon.exists():
            time.sleep(0.05)

    return lambda: (len(batch.ids) for batch in loader), len(loader.dataset), end


def _data_loader(folder: Path, workers: int) -> tuple[Callable[[], Iterable[int]], int]:
    import torch
    from torchvision.datasets import ImageFolder

    dataset = ImageFolder(str(folder), loader=_read)
    # Threads of torch in each worker would only be in each other's way.
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=workers, collate_fn=len, persistent_workers=True
    )
    return lambda: iter(loader), len(dataset)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write_images(images: Path, files: int) -> None:
    draw = random.Random(0)
    for number in range(files):
        path = images / f"{number % CLASSES:03}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\xff\xd8\xff\xe0" + draw.randbytes(FILE_BYTES))


def _told(words: list[str | Path]) -> str:
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
