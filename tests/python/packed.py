"""Small packed datasets for tests: an ImageFolder of noise, packed by the real `shade-pack`."""

import io
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from shade_load.launch import find_program

# Classes of unequal size. 61 samples are a prime, so every batch size from 2 on leaves a tail.
CLASSES = {"ant": 13, "bee": 20, "cat": 28}
SIDE = 16


@dataclass(frozen=True)
class Packed:
    """A dataset and its source. `files[id]` and `labels[id]` are in torchvision's order."""

    path: Path
    folder: Path
    files: list[Path]
    labels: list[int]

    def __len__(self) -> int:
        return len(self.files)

    def pixels(self, sample: int) -> bytes:
        """What PIL decodes, channel by channel."""
        with Image.open(self.files[sample]) as image:
            return b"".join(band.tobytes() for band in image.convert("RGB").split())

    def stored(self, sample: int) -> tuple[Path, int, int]:
        """(shard, offset, length) of a sample's record, by tar's own account."""
        for shard in sorted(self.path.glob("**/*.tar")):
            with tarfile.open(shard) as archive:
                for member in archive:
                    if int(member.name.split(".")[0]) == sample:
                        return shard, member.offset_data, member.size
        raise AssertionError(f"no record of sample {sample} under {self.path}")

    def copy_to(self, path: Path) -> "Packed":
        """A copy whose shards a test may damage."""
        shutil.copytree(self.path, path)
        return Packed(path, self.folder, self.files, self.labels)


def image_folder(root: Path, form: str, classes: dict[str, int] = CLASSES, side: int = SIDE) -> None:
    """Writes an ImageFolder, the same on every run. PNG: noise. JPEG: soft blots."""
    number = 0
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for position in range(count):
            source = random.Random(number)
            if form == "png":
                image = Image.frombytes("RGB", (side, side), source.randbytes(side * side * 3))
            else:
                image = Image.frombytes("RGB", (2, 2), source.randbytes(12)).resize((side, side))
            content = io.BytesIO()
            image.save(content, form, **({"quality": 95, "subsampling": 0} if form == "jpeg" else {}))
            (root / name / f"{position:03}.{form}").write_bytes(content.getvalue())
            number += 1


def try_pack(*args: object) -> subprocess.CompletedProcess[str]:
    """Runs `shade-pack` to its end, whatever that is."""
    command = [str(program("shade-pack")), *(str(arg) for arg in args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run_pack(*args: object) -> str:
    """Runs `shade-pack`, expects success, gives what it prints."""
    done = try_pack(*args)
    assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def pack(folder: Path, path: Path, *options: str) -> Packed:
    """Packs an ImageFolder and lists it in torchvision's order: classes by name, then files by name."""
    run_pack("create", folder, path, *options)
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    listed = [
        (file, label) for label, name in enumerate(classes) for file in sorted((folder / name).iterdir())
    ]
    return Packed(path, folder, [file for file, _ in listed], [label for _, label in listed])


def with_fields(plain: Packed, root: Path, fields: Callable[[int], dict[str, bytes]]) -> Packed:
    """The dataset with fields in addition, at `root`."""
    for sample, file in enumerate(plain.files):
        folder = root / "fields" / file.relative_to(plain.folder)
        folder.mkdir(parents=True)
        for name, content in fields(sample).items():
            (folder / name).write_bytes(content)
    out = root / "data.shade"
    subprocess.run([helper("shade-test-fields"), plain.path, root / "fields", out], check=True)
    return Packed(out, plain.folder, plain.files, plain.labels)


def program(name: str) -> Path:
    """One of our programs, found as the package finds them."""
    return find_program(name)


def helper(name: str) -> Path:
    """A program of the tests."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target"))
    path = target / "debug" / name
    assert path.is_file(), f"{path} is not built: run `cargo build --package shade-tests --bins`"
    return path
