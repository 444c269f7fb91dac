"""Compares a DataLoader with shade: `shade-load doctor --compare` runs it.

    python -m shade_load.doctor FOLDER [DATASET] --seconds 120

It prints one JSON object. The program shows it, and describes its keys.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

from .. import ShadeError
from .comparison import Asked, Comparison

# Exit code where it cannot compare: why is in the JSON.
FAILED = 4


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m shade_load.doctor")
    parser.add_argument("folder", type=Path)
    parser.add_argument("dataset", nargs="?")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--workers", type=int)
    args = parser.parse_args()
    # The daemons' lines would stand between those below.
    os.environ.setdefault("SHADE_LOG", "error")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parent = os.getppid()

    def said(what: str) -> None:
        # The program that has started this is gone, and nobody would hear of the result.
        if os.getppid() != parent:
            raise KeyboardInterrupt
        if sys.stderr.isatty():
            print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)

    try:
        found = Comparison(Asked(**vars(args)), said).run()
    except KeyboardInterrupt:
        return 130
    except (ShadeError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return FAILED
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
