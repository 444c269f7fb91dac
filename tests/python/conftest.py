"""Fixtures of all Python tests: ImageFolders of real images, and the same packed by the packer."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from demo.data import draw_picture
from packed import program

IMAGES_PER_CLASS = 30

# Files that take most of a minute and more, the longest first. The processes of `make test` take
# files in this order: one of these as the last would leave the other process without work.
LONG = (
    *("test_launchers.py", "test_readme.py", "test_accuracy_study.py", "test_demo.py", "test_killed_ddp.py"),
    *("test_two_nodes_ddp.py", "test_jobs_live.py", "test_wheel.py", "test_daemon_outlives_training.py"),
    *("test_seeds_bench.py", "test_two_nodes_bucket.py", "test_image_folder.py", "test_compare.py"),
    *("test_loader_transforms.py", "test_site.py", "test_public_scripts.py", "test_captions_bench.py"),
)
assert all(Path(__file__).with_name(name).is_file() for name in LONG), "a test was renamed"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of several, the long files come first."""
    if hasattr(config, "workerinput"):
        place = {name: at for at, name in enumerate(LONG)}
        items.sort(key=lambda item: place.get(item.path.name, len(place)))


# A shell starts background jobs with SIGINT ignored, and programs inherit that: Ctrl-C would raise
# no KeyboardInterrupt in the programs that tests start. A handler that does nothing is not
# inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda number, frame: None)


# Open MPI leaves a file of 16 MB in /dev/shm behind each process otherwise, also where it is only
# looked for, as by Lightning.
os.environ["OMPI_MCA_btl"] = "self,tcp"


# Threads of torch that wait for each other spin otherwise, and take the cores from the processes
# that they wait for: three trainings of a stock script took 15 s, and one with this. Torch is not
# loaded yet.
os.environ["OMP_WAIT_POLICY"] = "passive"

# What processes of `multiprocessing` import takes them two seconds of CPU. Those of a fork server
# are forked from one that has it.
multiprocessing.set_forkserver_preload(["torch", "torchvision", "shade_load"])


@pytest.fixture(scope="session")
def reference_pages() -> None:
    """The pages of docs/reference that follow from code, as `make docs` makes them."""
    script = Path(__file__).parents[2] / "setup/reference.py"
    subprocess.run([sys.executable, script, "--programs", program("shade-load").parent], check=True)


@pytest.fixture(scope="session")
def png_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 PNG files in 3 classes: many sizes, colour, grey, palette and alpha. Read only."""
    folder = tmp_path_factory.mktemp("png") / "images"
    modes = ("RGB", "L", "P", "RGBA")
    _write_images(folder, ("ant", "bee", "cat"), "png", lambda image, number: image.convert(modes[number % len(modes)]))
    return folder


@pytest.fixture(scope="session")
def jpeg_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 JPEG files in 3 classes: many sizes, colour and grey. Read only."""
    folder = tmp_path_factory.mktemp("jpeg") / "images"
    modes = ("RGB", "RGB", "L")
    _write_images(folder, ("dog", "elk", "fox"), "jpg", lambda image, number: image.convert(modes[number % len(modes)]))
    return folder


@pytest.fixture(scope="session")
def png_dataset(tmp_path_factory: pytest.TempPathFactory, png_folder: Path) -> Path:
    """`png_folder`, packed with the default options. Read only."""
    return _pack(png_folder, tmp_path_factory.mktemp("png-packed") / "data.shade")


@pytest.fixture(scope="session")
def jpeg_dataset(tmp_path_factory: pytest.TempPathFactory, jpeg_folder: Path) -> Path:
    """`jpeg_folder`, packed with the default options. Read only."""
    return _pack(jpeg_folder, tmp_path_factory.mktemp("jpeg-packed") / "data.shade")


def _pack(folder: Path, target: Path) -> Path:
    subprocess.run([program("shade-pack"), "create", folder, target], check=True)
    return target


def _write_images(
    folder: Path, classes: tuple[str, ...], extension: str, convert: Callable[[Image.Image, int], Image.Image]
) -> None:
    generator = np.random.default_rng(20)
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for number in range(IMAGES_PER_CLASS):
            height, width = generator.integers(16, 97, size=2)
            picture = draw_picture(label, generator, size=96)[:height, :width]
            convert(Image.fromarray(picture), number).save(folder / name / f"{number:03}.{extension}")
