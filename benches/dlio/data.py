"""The data: written once, then given as many names as an epoch needs.

An epoch of 320 steps of eight ranks is 117 GB. What is on the disk is less, and each file has
several names (hard links): DLIO's own readers see files enough, and shade a packed dataset with as
many samples, whose shards are linked. So nobody's epoch ends within an epoch, and neighbours in the
dataset are as rare in a batch as with data of that size. The slow store shows each name as a file
of its own, so the page cache does not know that they are one. On the local disk it does: there
memory is a fifth of what was written (`cell.py`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy
from shade_load import Writer

from benches.dlio.copies import renamed
from benches.dlio.rows import BATCH, RECORD_BYTES, SAMPLES_PER_FILE, WORKLOAD

# The start of a JPEG of 338 x 338 pixels, as DLIO makes of this many bytes. Noise follows.
JPEG_START = bytes.fromhex("ffd8 ffc0 0011 08 0152 0152 03 011100 021100 031100")
PHOTOS = 12_000


def files_for(per_file: int, accelerators: int, steps: int) -> int:
    """Files that an epoch of these steps needs, as many for each rank."""
    return accelerators * -(-steps * BATCH // per_file)


class Data:
    """The data below `root`: `made` is what was written, `shown` has all names of it."""

    def __init__(self, root: Path, programs: Path, files: int) -> None:
        self.made, self.shown = root / "made", root / "shown"
        self.programs = programs
        self.files = files

    @property
    def samples(self) -> int:
        """Samples that were written, by shade and as TFRecord."""
        return self.files * SAMPLES_PER_FILE

    def written(self, kind: str) -> Path:
        """Where the bytes of this kind of data are."""
        return self.made / {"shade": "piece.shade", "photos-shade": "photos.shade"}.get(kind, kind)

    def prepare(self, kinds: set[str], accelerators: int, steps: int) -> None:
        """Makes what is missing for these kinds of data, for up to so many accelerators."""
        makers = {"tfrecord": self._tfrecord, "npz": self._npz, "shade": self._shade, "photos": self._photos}
        makers["photos-shade"] = self._packed_photos
        self.made.mkdir(parents=True, exist_ok=True)
        for kind in sorted(kinds):
            makers[kind](accelerators, steps)
            # DLIO looks into it also where it evaluates nothing.
            (self.shown / kind / "valid").mkdir(exist_ok=True)

    def _tfrecord(self, accelerators: int, steps: int) -> None:
        self._by_dlio("tfrecord", "tensorflow", self.files, SAMPLES_PER_FILE)
        shown = self.shown / "tfrecord"
        for name in _names(self.made / "tfrecord/train", files_for(SAMPLES_PER_FILE, accelerators, steps)):
            _link(name.file, shown / "train" / name.shown)
            index = self.made / "tfrecord/index/train" / f"{name.file.name}.idx"
            _link(index, shown / "index/train" / f"{name.shown}.idx")

    def _npz(self, accelerators: int, steps: int) -> None:
        self._by_dlio("npz", "pytorch", self.samples, 1)
        for name in _names(self.made / "npz/train", files_for(1, accelerators, steps)):
            _link(name.file, self.shown / "npz/train" / name.shown)

    def _shade(self, accelerators: int, steps: int) -> None:
        piece = self.made / "piece.shade"
        if not piece.exists():
            _say(f"packing {self.samples} records of {RECORD_BYTES} bytes")
            _write_noise(piece, self.samples)
        _placeholders(self.shown / "shade/train", files_for(SAMPLES_PER_FILE, accelerators, steps))
        self._merged(piece, self.shown / "shade/train.shade", accelerators * steps * BATCH)

    def _photos(self, accelerators: int, steps: int) -> None:
        self._make_photos()
        for name in _names(self.made / "photos", files_for(1, accelerators, steps)):
            _link(name.file, self.shown / "photos/train" / f"{name.shown}.jpeg")

    def _packed_photos(self, accelerators: int, steps: int) -> None:
        piece = self.made / "photos.shade"
        self._make_photos()
        if not piece.exists():
            with Writer(piece) as writer:
                for number, path in enumerate(sorted((self.made / "photos").rglob("*.jpg"))):
                    writer.add(path, key=_key(number))
        _placeholders(self.shown / "photos-shade/train", files_for(SAMPLES_PER_FILE, accelerators, steps))
        self._merged(piece, self.shown / "photos-shade/train.shade", accelerators * steps * BATCH)

    def _make_photos(self) -> None:
        if not (self.made / "photos").exists():
            _say(f"drawing {PHOTOS} photographs")
            partial = self.made / "photos.partial"
            shutil.rmtree(partial, ignore_errors=True)
            subprocess.run([self.programs / "shade-benches", "--images", partial, "--files", str(PHOTOS)], check=True)
            partial.rename(self.made / "photos")

    def _by_dlio(self, kind: str, framework: str, files: int, per_file: int) -> None:
        """DLIO writes its own data."""
        if (self.made / kind).exists():
            return
        _say(f"DLIO writes {files} files of {kind}")
        partial = self.made / f"{kind}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        dataset = {
            "data_folder": partial,
            "format": kind,
            "num_files_train": files,
            "num_samples_per_file": per_file,
        }
        words = [f"++workload.dataset.{name}={value}" for name, value in dataset.items()]
        words += [f"++workload.framework={framework}", f"++workload.reader.data_loader={framework}"]
        words += ["++workload.workflow.generate_data=True", "++workload.workflow.train=False"]
        words += [f"++workload.output.folder={self.made}/output", f"hydra.run.dir={self.made}/output"]
        subprocess.run(dlio_command(2, words), check=True, stdout=subprocess.DEVNULL)
        partial.rename(self.made / kind)

    def _merged(self, piece: Path, out: Path, samples: int) -> None:
        """The dataset of so many samples: copies of a piece, under other names, whose shards are links."""
        one = len(sorted(self.made.glob("photos/**/*.jpg"))) if "photos" in piece.name else self.samples
        copies = -(-samples // one)
        mark = out.with_suffix(".copies")
        if mark.exists() and int(mark.read_text()) >= copies:
            return
        shutil.rmtree(out, ignore_errors=True)
        folders = [piece]
        for copy in range(1, copies):
            folders.append(self.made / "copies" / f"{piece.stem}-{copy}.shade")
            renamed(piece, folders[-1], _prefix(0), _prefix(copy))
        _say(f"linking {copies} copies of {piece.name}")
        merge = [self.programs / "shade-pack", "merge", "--quiet", "--link", out, *folders]
        subprocess.run(merge, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(self.made / "copies", ignore_errors=True)
        mark.write_text(f"{copies}\n")


class _Name:
    """A file, and a name under which it is shown."""

    def __init__(self, file: Path, copy: int) -> None:
        self.file, self.shown = file, f"{_prefix(copy)[:-1]}-{file.name}"


def _names(folder: Path, wanted: int) -> list[_Name]:
    """So many names of the folder's files: all once, then all again."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [_Name(files[number % len(files)], number // len(files)) for number in range(wanted)]


def _link(file: Path, shown: Path) -> None:
    if not shown.exists():
        shown.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, shown)


def _placeholders(folder: Path, files: int) -> None:
    """DLIO counts files to find its steps. For a Loader they are empty."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        (folder / f"img_{number:04}.jpeg").touch()


def _write_noise(out: Path, samples: int) -> None:
    draw = numpy.random.default_rng(0)
    with Writer(out, options=["--no-sync"]) as writer:
        for number in range(samples):
            writer.add(JPEG_START + draw.bytes(RECORD_BYTES - len(JPEG_START)), key=_key(number))


def _prefix(copy: int) -> str:
    return f"copy-{copy:03}/"


def _key(number: int) -> str:
    return f"{_prefix(0)}{number:07}"


def _say(what: str) -> None:
    print(f"data: {what} ...", file=sys.stderr, flush=True)


def environment(programs: Path) -> dict[str, str]:
    """The environment of all that is run: shade's programs, and those of DALI that DLIO calls."""
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names = {"SHADE_LOAD_BIN": programs / "shade-load", "SHADE_PACK_BIN": programs / "shade-pack"}
    return {**os.environ, "PATH": own, **{name: str(program) for name, program in names.items()}}


def dlio_command(ranks: int, words: list[str], *flags: str) -> list[str]:
    """The command of DLIO's ranks."""
    mpirun = Path(sys.executable).with_name("mpirun")
    own = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    rank = [sys.executable, "-m", "benches.dlio.rank", *flags, f"workload={WORKLOAD}"]
    return [str(mpirun), *own, *rank, *words]
