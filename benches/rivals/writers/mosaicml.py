"""MosaicML Streaming's MDSWriter. Workers as its documentation has them: a writer each, indices merged at the end."""

from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

from streaming import MDSWriter
from streaming.base.util import merge_index

from benches.rivals.writers.listing import read, samples

WANTS_FOLDER = True


def pack(source: Path, out: Path, _programs: Path, workers: int) -> None:
    every = samples(source)
    size = -(-len(every) // workers)
    parts = [(str(out / str(part)), every[part * size : (part + 1) * size]) for part in range(workers)]
    # Forked, so that nothing is imported twice.
    with get_context("fork").Pool(workers) as pool:
        pool.starmap(_write, parts)
    merge_index(str(out), keep_local=True)


def _write(out: str, part: list[tuple[str, int]]) -> None:
    with MDSWriter(out=out, columns={"image": "bytes", "label": "int"}) as writer:
        for path, label in part:
            writer.write({"image": read(path), "label": label})


def version(_programs: Path) -> str:
    return metadata.version("mosaicml-streaming")
