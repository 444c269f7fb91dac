"""Draws docs/pictures/top.svg: `shade-load top` in a terminal, while a training waits for a slow store.

    .venv/bin/python docs/pictures/top.py

Needs tmux, and the programs of this checkout on PATH or in .venv/bin. The store is simulated: 5 MB of
images whose reads take 20 ms, 4 at a time. The training takes what comes and computes nothing.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
from PIL import Image

from shade_load import Daemon, Loader

HERE = Path(__file__).parent
COLUMNS, ROWS = 142, 9
# Three of a terminal's 16 colours, on a dark ground.
COLOURS = {"38;5;1": "#ff7b72", "38;5;2": "#4ac26b", "38;5;3": "#e3b341"}
PLAIN = "#d7dbe0"
WIDTH, HEIGHT = 7.83, 18


def programs() -> dict[str, str]:
    """An environment whose PATH begins with this interpreter's programs."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def pack(folder: Path) -> Path:
    """Noise as PNGs of two classes, packed."""
    draw = numpy.random.default_rng(0)
    for number in range(400):
        path = folder / f"images/class-{number % 2}/{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (64, 64, 3), numpy.uint8)).save(path)
    dataset = folder / "train.shade"
    subprocess.run(["shade-pack", "create", "--quiet", folder / "images", dataset], check=True, env=programs())
    return dataset


@contextlib.contextmanager
def serving(dataset: Path) -> Iterator[None]:
    """A daemon with a slow store."""
    store = ["--cache", "20%", "--store", "latency=20ms,depth=4"]
    command = ["shade-load", "serve", dataset, *store]
    daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=programs())
    try:
        while "serving" not in daemon.stderr.readline():
            assert daemon.poll() is None, "the daemon ended"
        threading.Thread(target=daemon.stderr.read, daemon=True).start()
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def train(dataset: Path, begun: threading.Event, stop: threading.Event) -> None:
    with Loader(dataset, 16, image_size=64, daemon=Daemon(job="resnet50")) as loader:
        while not stop.is_set():
            for _ in loader:
                pass
            begun.set()


def captured(seconds: float) -> str:
    """What a terminal shows after so long, with its colours."""
    tmux = ["tmux", "-L", f"shade-{os.getpid()}"]
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    subprocess.run([*tmux, "new-session", "-d", *size, "shade-load top"], check=True, env=programs())
    try:
        time.sleep(seconds)
        capture = [*tmux, "capture-pane", "-p", "-e"]
        return subprocess.run(capture, check=True, stdout=subprocess.PIPE, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def drawn(screen: str) -> str:
    """The screen as SVG, a span for each run of one colour."""
    lines = screen.rstrip().split("\n")
    width, height = round(COLUMNS * WIDTH) + 28, len(lines) * HEIGHT + 28
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="13"',
        ' font-family="ui-monospace, Menlo, DejaVu Sans Mono, monospace" role="img">',
        "<title>shade-load top: a training that waits for storage</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#14171a"/>\n',
    ]
    for row, line in enumerate(lines):
        colour, weight, column = PLAIN, "normal", 0
        for text in re.split(r"(\x1b\[[\d;]*m)", line):
            if found := re.fullmatch(r"\x1b\[([\d;]*)m", text):
                codes = found[1]
                if codes in ("", "0"):
                    colour, weight = PLAIN, "normal"
                elif codes == "1":
                    weight = "bold"
                elif codes == "39" or codes.startswith("38;5;"):
                    colour = COLOURS.get(codes, PLAIN)
            elif text:
                x, y = 14 + column * WIDTH, 14 + (row + 0.75) * HEIGHT
                parts.append(
                    f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-weight="{weight}" xml:space="preserve"'
                    f' textLength="{len(text) * WIDTH:.1f}">{html.escape(text)}</text>\n'
                )
                column += len(text)
    return "".join([*parts, "</svg>\n"])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dataset, begun, stop = pack(Path(folder)), threading.Event(), threading.Event()
        with serving(dataset):
            training = threading.Thread(target=train, args=(dataset, begun, stop))
            training.start()
            # The cache is full after an epoch.
            begun.wait()
            screen = captured(4.0).replace(str(dataset), "/data/train.shade")
            stop.set()
            training.join()
    (HERE / "top.svg").write_text(drawn(screen), encoding="utf-8")
    print(re.sub(r"\x1b\[[\d;]*m", "", screen).rstrip())


if __name__ == "__main__":
    main()
