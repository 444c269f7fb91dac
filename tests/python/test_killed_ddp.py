"""Ranks and daemons of a training over two nodes are killed. Then all ends, and goes on from the last state.

SHADE_KILLS sets the number of kills with each sampler (1), SHADE_SEED another sequence of them.
"""

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import packed
import pytest
from hosts import HANG_SECONDS, hosts

from studies.hosts import Hosts

pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("killed_train.py")
KILLS = int(os.environ.get("SHADE_KILLS", "1"))
EPOCHS = 3
SAMPLES = {"ant": 500, "bee": 901}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("killed")
    packed.image_folder(root / "folder", "png", SAMPLES, side=4)
    return packed.pack(root / "folder", root / "data.shade")


def victims(nodes: Hosts) -> list[int]:
    """The ranks and daemons on all hosts. What starts ranks again is spared."""
    found = []
    for namespace in nodes.namespaces:
        listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True).stdout
        for pid in map(int, listed.split()):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            is_rank = str(SCRIPT).encode() in command and b"torch.distributed.run" not in command
            if is_rank or command[0].endswith(b"shade-load"):
                found.append(pid)
    return found


def lines(out: Path) -> int:
    """How many batches ranks have noted so far."""
    return sum(note.read_bytes().count(b"\n") for note in out.glob("note-*"))


def train(nodes: Hosts, dataset: packed.Packed, out: Path, sampler: str, kills: int, chance: random.Random) -> int:
    """Trains to the end, with up to so many kills. Returns how many there were."""
    killed = 0
    while True:
        before = lines(out)
        agents = [nodes.torchrun(host, 2, SCRIPT, dataset.path, out, EPOCHS, sampler) for host in range(2)]
        victim = None
        if killed < kills:
            # At a random time after the training has gone on.
            while lines(out) == before and all(agent.poll() is None for agent in agents):
                time.sleep(0.01)
            time.sleep(chance.random() * 1.5)
            if there := victims(nodes):
                victim = chance.choice(there)
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                    killed += 1
        # All ranks end by themselves, also those that were not killed.
        outputs = [agent.communicate(timeout=HANG_SECONDS)[0] for agent in agents]
        if all(agent.returncode == 0 for agent in agents):
            return killed
        assert victim is not None, "\n".join(outputs)


def assert_the_plan_was_given(dataset: packed.Packed, out: Path, sampler: str) -> None:
    """Each epoch was as long as the dataset. Permutations have each sample once, and are the same in all attempts."""
    given: dict[tuple[int, int, int], list[int]] = {}
    # By attempt: the next one may draw an epoch by losses otherwise that no state has yet.
    for note in sorted(out.glob("note-*"), key=lambda note: int(note.name.split("-")[2])):
        rank = int(note.name.split("-")[1])
        # The last line of a rank that was killed may be a part.
        for line in note.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                epoch, batch, ids, labels = json.loads(line)
                if sampler == "uniform":
                    assert given.get((epoch, batch, rank), ids) == ids
                given[epoch, batch, rank] = ids
                assert labels == [dataset.labels[sample] for sample in ids]
    for epoch in range(EPOCHS):
        of_epoch = sorted(sample for (of, _, _), ids in given.items() if of == epoch for sample in ids)
        assert len(of_epoch) == len(dataset)
        if sampler == "uniform" or epoch == 0:
            assert of_epoch == list(range(len(dataset)))


@pytest.mark.parametrize("sampler", ["uniform", "pads"])
def test_no_sample_is_lost_or_doubled(sampler: str, dataset: packed.Packed, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("SHADE_SEED", "24")))
    killed = trainings = 0
    while killed < KILLS:
        out = tmp_path / str(trainings)
        out.mkdir()
        with hosts(2) as nodes:
            killed += train(nodes, dataset, out, sampler, KILLS - killed, chance)
        assert_the_plan_was_given(dataset, out, sampler)
        trainings += 1
    print(f"{killed} kills in {trainings} trainings")
