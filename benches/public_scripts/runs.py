"""One script, as it is and ported: an epoch, one more from what was saved, and what both delivered."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import compare, sources, stand_ins
from .compare import Run
from .data import Data
from .ports import Port
from .scripts import Script

ROOT = Path(__file__).parents[2]
# Lines of a failed run's log that an error quotes.
TAIL = 15
# The run of an epoch that is saved, and the one that goes on from it.
FIRST, RESUMED = "first", "resumed"


class Failed(Exception):
    """A script ended with an error."""


@dataclass
class Place:
    """A copy of the script's repository, and the folder in which it runs."""

    tree: Path
    work: Path
    # What the paths of its splits end in.
    split: str

    def prepare(self, script: Script, data: Data) -> None:
        """Makes the folder, with the links to the data that the script expects there."""
        self.work.mkdir(exist_ok=True)
        for link in (self.work / name for name in script.links):
            if not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(data.root)


@dataclass
class Runner:
    """What all runs have in common."""

    scratch: Path
    # Packages of older versions, by a folder that comes first.
    old_timm: Path | None

    def row(self, port: Port, script: Script, repository: Path, given: Path | None) -> dict[str, Any]:
        """Runs both and compares them. What fails is in the row, with the log's last lines."""
        told = ("no workers", *script.stand_ins)
        row: dict[str, Any] = {
            "script": port.name, "repository": port.repository, "commit": port.commit, "added": port.added,
            "removed": port.removed, "stand_ins": [stand_ins.ALL[name].what for name in told],
            "differs": script.differs, "equal": {}, "levels": {}, "failed": [],
        }  # fmt: skip
        folder = self.scratch / port.name
        data = script.make_data(folder / "data", given)
        trees = {name: folder / name / "tree" for name in ("original", "port")}
        for tree in trees.values():
            sources.unpack(repository, port, tree)
        sources.apply(port, trees["original"], trees["port"])
        places = {
            "original": Place(trees["original"], folder / "original" / "work", ""),
            "port": Place(trees["port"], folder / "port" / "work", ".shade"),
            "plain": Place(trees["port"], folder / "port" / "plain", ".shade"),
        }
        wanted = [(name, part) for name in ("original", "port") for part in (FIRST, RESUMED)]
        if script.has_operations:
            wanted.append(("plain", FIRST))
        found: dict[tuple[str, str], Run] = {}
        for name, part in wanted:
            places[name].prepare(script, data)
            try:
                found[name, part] = self._run(places[name], script, data, part, is_plain=name == "plain")
            except Failed as error:
                row["failed"].append(f"{name}, {part}: {error}")
        _compare(row, found, data, script)
        return row

    def _run(self, place: Place, script: Script, data: Data, part: str, is_plain: bool) -> Run:
        """One process.

        Raises:
            Failed: It ended with an error.
        """
        out, order, log = (place.work / name for name in (f"observed-{part}", f"order-{part}.json", f"{part}.log"))
        names = ["no workers", *script.stand_ins, *(["geometry only"] if is_plain else [])]
        checkpoint = None
        if part == RESUMED and script.checkpoint is not None:
            saved = list(place.work.glob(script.checkpoint))
            if not saved:
                raise Failed(f"{place.work}: has no {script.checkpoint} to resume from")
            checkpoint = str(max(saved, key=lambda path: path.stat().st_mtime))
        told = {
            "out": str(out), "train_samples": len(data.index[data.train]), "epochs": 1 if script.is_ended else None,
            "stand_ins": names, "checkpoint": checkpoint,
        }  # fmt: skip
        order.write_text(json.dumps(told))
        arguments = (*script.arguments, *(script.resumed if part == RESUMED else script.one_epoch))
        words = [word.format(data=data.root, split=place.split) for word in arguments]
        command = [sys.executable, "-m", f"{__package__}.observe", order, place.tree / script.file, *words]
        options = {"cwd": place.work, "env": self._environment(script), "stderr": subprocess.STDOUT, "check": False}
        # A terminal, since one script asks it for its width.
        ours, theirs = pty.openpty()
        try:
            with log.open("wb") as written:
                done = subprocess.run(list(map(str, command)), stdin=theirs, stdout=written, **options)
        finally:
            os.close(ours)
            os.close(theirs)
        if done.returncode:
            lines = log.read_text(errors="replace").splitlines()[-TAIL:]
            raise Failed("\n".join([f"exit status {done.returncode}, {log}", *lines]))
        return Run.read(out)

    def _environment(self, script: Script) -> dict[str, str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        if script.needs_old_timm and self.old_timm is not None:
            path.insert(0, str(self.old_timm))
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path)), "CUDA_VISIBLE_DEVICES": ""}
        # Checkpoints of these scripts hold their arguments, which torch no longer loads by itself.
        env |= {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(self.scratch / "hub")}
        if "no GPU" in script.stand_ins and script.file == "main_dino.py":
            env |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return env


def _compare(row: dict[str, Any], found: dict[tuple[str, str], Run], data: Data, script: Script) -> None:
    """Writes into the row what each did, and what differs."""
    train, val = (len(data.index[split]) for split in (data.train, data.val))
    for name in ("original", "port"):
        first, resumed = found.get((name, FIRST)), found.get((name, RESUMED))
        row[name] = {
            "trains": first is not None and len(first.of(train)) > 0,
            "validates": None if not script.validates else first is not None and len(first.of(val)) > 0,
            "resumes": resumed is not None and len(resumed.of(train)) == 1,
        }
    original, port = found.get(("original", FIRST)), found.get(("port", FIRST))
    if original is None or port is None:
        return
    ported = [found[key] for key in (("port", FIRST), ("port", RESUMED)) if key in found]
    epochs = [run.passes[at]["epoch"] for run in ported for at in run.of(train)]
    row["equal"] = {
        "classes": compare.classes(original, port, data),
        "epochs": None if epochs == list(script.epochs) else f"epochs {epochs}, expected {list(script.epochs)}",
    }
    for split, samples in (("training", train), *((("validation", val),) if script.validates else ())):
        drops = compare.drops_tail(original, samples)
        row["equal"][f"len, {split}"] = compare.lengths(original, port, samples)
        row["equal"][f"coverage, {split}"] = compare.coverage(port, samples, drops)
    if script.validates:
        row["levels"]["validation"] = compare.validation_pixels(original, port, data, script)
    plain = found.get(("plain" if script.has_operations else "port", FIRST))
    if plain is not None:
        row["levels"]["training"] = compare.training_pixels(plain, data, script)


def is_well(row: dict[str, Any]) -> bool:
    """Whether the port does all that the original does, and delivers the same."""
    return (
        not row["failed"]
        and all(done is not False for name in ("original", "port") for done in row[name].values())
        and bool(row["equal"])
        and not any(row["equal"].values())
        and all(level <= compare.LEVEL + compare.ROUNDING for level in row["levels"].values())
    )


def scratch_folder() -> Path:
    """An empty folder for what is made on the way."""
    return Path(tempfile.mkdtemp(prefix="shade-public-scripts-"))


def remove(folder: Path) -> None:
    """Removes what `scratch_folder` made."""
    shutil.rmtree(folder)
