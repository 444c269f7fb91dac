"""What the live benches have in common: a store that can be mounted, packed data, a record with its report."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shade_load import find_daemon

from benches.rivals.report import Start
from studies import slow_store as stores

Record = dict[str, Any]


def options(module: str, about: str) -> argparse.ArgumentParser:
    """The arguments that all have."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    parser.add_argument("--programs", type=Path, default=Path("target/release"), help="folder with shade-slow-store")
    parser.add_argument("--out", type=Path, help="folder of the record (default: one in benches/record, by date)")
    return parser


def write(
    name: str,
    out: Path | None,
    measure: Callable[[Path, Start], Record],
    report: Callable[[Record], str],
    failures: tuple[type[Exception], ...] = (),
) -> int:
    """Measures with a folder for what is made on the way, writes results.json and report.md.

    Returns the exit status. `failures` are told without a traceback, as are those of all.
    """
    start = Start()
    out = out or Path(__file__).parent / "record" / f"{start.date[:10]}-{name}"
    try:
        with tempfile.TemporaryDirectory(prefix="shade-") as scratch:
            record = {**measure(Path(scratch), start), "command": shlex.join(sys.orig_argv)}
    except KeyboardInterrupt:
        return stores.INTERRUPTED
    except (OSError, subprocess.CalledProcessError, stores.Failed, *failures) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "report.md").write_text(report(record))
    print(f"written: {out / 'report.md'}")
    return 0


def mounted(programs: Path, delay_us: int, at_once: int, scratch: Path) -> stores.SlowStore:
    """The slow store.

    Raises:
        OSError: No file system can be mounted here: reads cannot be counted at the store.
    """
    store = stores.find(programs, delay_us, at_once, scratch)
    if store.program is None:
        raise OSError(f"the slow store cannot be mounted: {store.simulated_because}")
    return store


def pack(images: Path, target: Path) -> Path:
    """An ImageFolder, packed."""
    subprocess.run([_packer(), "create", "--quiet", images, target], check=True)
    return target


def info(dataset: Path) -> dict[str, Any]:
    """What `shade-pack info` tells of a packed dataset."""
    told = subprocess.run([_packer(), "info", dataset, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(told.stdout)


def simulate(*words: object) -> list[dict[str, Any]]:
    """The rows of `shade-load simulate`."""
    command = [str(word) for word in (find_daemon(), "simulate", *words, "--json")]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)["rows"]


def _packer() -> Path:
    return find_daemon().with_name("shade-pack")
