"""The command: `python -m benches.public_scripts --help`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benches.rivals.report import Start

from . import ports, runs, scripts, sources

ABOUT = """\
Ports eight public training scripts to shade, runs each as it is and ported on the CPU, and compares
what their loaders deliver: length, classes, coverage, pixels.

None of their code is in this repository. Bring the repositories as git checkouts or git directories
(also bare ones) in one folder, called OWNER+NAME or NAME, with the commits of `--list`; or give
--clone. Each file must have the SHA-256 that the port was written for. A port adds at most 10 lines.

The scripts run with the packages of this Python. Besides shade's own tests' they need lightly,
datasets, evaluate and tensorboard, and ConvNeXt a timm of its time in a folder of its own:
pip install --no-deps --target FOLDER timm==0.4.12

CIFAR's two scripts and lightly's read made pickles in CIFAR's layout; for their ports these are
exported as PNG files, since a pickle cannot be packed.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="python -m benches.public_scripts", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--sources", type=Path, metavar="FOLDER", help="folder with the repositories")
    made.add_argument("--clone", action="store_true", help="clone those that are not there, with git, over the network")
    made.add_argument("--data", type=Path, metavar="FOLDER", help="an ImageFolder with train and val (default: drawings)")
    made.add_argument("--old-timm", type=Path, metavar="FOLDER", help="folder with timm 0.4.12, for ConvNeXt")
    names = sorted(scripts.ALL)
    made.add_argument("--only", nargs="+", metavar="NAME", choices=names, help="these scripts (default: all)")
    made.add_argument("--check", action="store_true", help="only apply the ports: hashes and numbers of lines")
    made.add_argument("--list", action="store_true", help="print the ports' repositories and commits, and end")
    keep = "make copies, data and logs in this new folder, and keep it"
    made.add_argument("--keep", type=Path, metavar="FOLDER", help=keep)
    made.add_argument("--out", type=Path, metavar="FILE", help="where to write the results as JSON")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 if all that was tried is equal."""
    args = parser().parse_args(arguments)
    try:
        chosen = [port for port in ports.all_ports() if args.only is None or port.name in args.only]
        if args.list:
            for port in chosen:
                print(f"{port.name:36} +{port.added} -{port.removed:<4} {port.repository} {port.commit}")
            return 0
        if args.sources is None:
            parser().error("--sources FOLDER is needed: the folder with the repositories")
        repositories = {port.name: sources.find(args.sources, port, args.clone) for port in chosen}
        if args.keep is not None:
            args.keep.mkdir(parents=True)
        scratch = args.keep.absolute() if args.keep is not None else runs.scratch_folder()
        try:
            rows = check(chosen, repositories, scratch) if args.check else run(chosen, repositories, scratch, args)
        finally:
            if args.keep is None:
                runs.remove(scratch)
    except (ports.Refused, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if all(row["is_well"] for row in rows) else 1


def check(chosen: list[ports.Port], repositories: dict[str, Path], scratch: Path) -> list[dict[str, Any]]:
    """Applies each port to a copy."""
    for port in chosen:
        for name in ("original", "port"):
            sources.unpack(repositories[port.name], port, scratch / port.name / name)
        sources.apply(port, scratch / port.name / "original", scratch / port.name / "port")
        print(f"{port.name}: +{port.added} -{port.removed}")
    return [{"is_well": True} for _ in chosen]


def run(
    chosen: list[ports.Port], repositories: dict[str, Path], scratch: Path, args: argparse.Namespace
) -> list[dict[str, Any]]:
    """Runs and compares; prints a table and writes the results."""
    start = Start()
    runner = runs.Runner(scratch, args.old_timm.absolute() if args.old_timm else None)
    rows = []
    for port in chosen:
        print(f"{port.name} ...", file=sys.stderr, flush=True)
        row = runner.row(port, scripts.ALL[port.name], repositories[port.name], args.data)
        rows.append(row | {"is_well": runs.is_well(row)})
        for failure in row["failed"] + [f"{what}: {told}" for what, told in row["equal"].items() if told]:
            print(f"{port.name}: {failure}", file=sys.stderr, flush=True)
    print(table(rows))
    if args.out is not None:
        result = start.finish(_versions(), rows) | {"command": shlex.join(sys.orig_argv)}
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown, as in docs/in-your-script.md."""
    columns = (
        "script, commit", "lines", "trains / validates / resumes", "`len`, classes, coverage",
        "pixels: validation / training", "what differs",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        done = " / ".join({True: "yes", False: "**no**", None: "-"}[value] for value in row["port"].values())
        unlike = [what for what, told in row["equal"].items() if told]
        equal = "equal" if row["equal"] and not unlike else f"**differ**: {', '.join(unlike) or 'not run'}"
        levels = [row["levels"].get(split) for split in ("validation", "training")]
        cells = (
            f"{row['repository']}, `{row['commit'][:10]}`", f"+{row['added']} -{row['removed']}", done, equal,
            " / ".join("-" if level is None else f"{level:.2f}" for level in levels), row["differs"],
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "torchvision", "timm", "lightly", "pytorch_lightning", "transformers", "datasets", "pillow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
