"""A running daemon's cache grows and shrinks, by the Loader that owns it and by the command."""

import json
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

# A training that has started the daemon: it resizes the cache to what each line says.
OWNER = """
import json, sys
from shade_load import Loader, Plan
with Loader(sys.argv[1], 8, plan=Plan(sampler="uniform")) as loader:
    print(json.dumps(loader.job), flush=True)
    for line in sys.stdin:
        print(json.dumps(loader.resize_cache(line.strip())), flush=True)
"""


@pytest.fixture
def dataset(tmp_path: Path) -> packed.Packed:
    """One for each test, and so one daemon."""
    packed.image_folder(tmp_path / "folder", "png")
    return packed.pack(tmp_path / "folder", tmp_path / "data.shade")


@pytest.fixture
def owner(dataset: packed.Packed) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", OWNER, str(dataset.path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert heard(process) == "default"
    yield process
    process.kill()
    process.communicate()


def heard(process: subprocess.Popen[str]) -> object:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def epoch(loader: Loader, dataset: packed.Packed) -> int:
    """Takes an epoch of raw records, each of which must be its sample's; returns the hits."""
    hits, seen = 0, Counter[int]()
    for batch in loader:
        for sample, label, record in zip(batch.ids.tolist(), batch.labels.tolist(), batch.records, strict=True):
            path, at, length = dataset.stored(sample)
            assert record.numpy().tobytes() == path.read_bytes()[at : at + length]
            assert label == dataset.labels[sample]
        seen.update(batch.ids.tolist())
        hits += batch.hits
    assert seen == Counter(range(len(dataset)))
    return hits


def test_a_loader_resizes_its_cache_while_it_trains(dataset: packed.Packed) -> None:
    # With `draw_ahead` nothing is filled before its epoch, so that an epoch's hits are its own.
    with Loader(dataset.path, 8, cache="10%", plan=Plan(sampler="uniform", draw_ahead=True)) as loader:
        small = loader.stats()["cache_bytes"]
        epoch(loader, dataset)
        few = epoch(loader, dataset)
        assert loader.resize_cache("100%") == loader.stats()["cache_bytes"] > 9 * small
        epoch(loader, dataset)
        assert epoch(loader, dataset) == len(dataset) > 2 * few
        assert loader.resize_cache(small) == small
        assert loader.stats()["cache_used_bytes"] <= small
        for size in (-1, "many", "101%", "auto"):
            with pytest.raises(ValueError, match="cache: got"):
                loader.resize_cache(size)
        assert epoch(loader, dataset) < len(dataset)


def test_only_the_job_that_started_the_daemon_resizes_a_shared_cache(
    dataset: packed.Packed, owner: subprocess.Popen[str]
) -> None:
    with Loader(dataset.path, 8, cache="20%", plan=Plan(sampler="uniform")) as other:
        text = f"jobs default, default-2, and process {owner.pid} of job default has started its daemon"
        with pytest.raises(ShadeError, match=re.escape(text)) as refused:
            other.resize_cache("50%")
        command = re.search(r"shade-load (resize) SIZE (\S+)", str(refused.value))
        assert command is not None and command[2] == str(dataset.path)
        # The command that the error names, and the owner itself.
        subprocess.run([packed.program("shade-load"), "resize", "100%", command[2]], check=True)
        whole = other.stats()["cache_bytes"]
        assert owner.stdin is not None
        owner.stdin.write("50%\n")
        owner.stdin.flush()
        assert heard(owner) == other.stats()["cache_bytes"] == whole // 2


def test_a_loader_that_asks_for_another_size_is_told_once(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 8, cache="20%", daemon=Daemon(job="a")) as first:
        first.resize_cache("50%")
        with pytest.warns(RuntimeWarning, match="has other settings.*cache 50% instead of 30%") as told:
            Loader(dataset.path, 8, cache="30%", daemon=Daemon(job="b")).close()
        assert len(told) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Loader(dataset.path, 8, cache="50%", daemon=Daemon(job="c")).close()
