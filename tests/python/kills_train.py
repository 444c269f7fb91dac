"""One rank of a training whose daemons it kills: notes what each row was, and when.

Arguments: dataset, folder for notes, rank, world size, kills, seed, epochs (0: until all kills are done). A line of a
note is [epoch, batch, checksums of rows, seconds, the daemon's process]. The last one is about all of it.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

import torch
from shade_load import Batch, Daemon, Loader
from shade_load.transforms import RandomHorizontalFlip, RandomResizedCrop

DECODE = [RandomResizedCrop(8), RandomHorizontalFlip()]
BATCH = 2
MOMENTS = ("epoch", "batch", "taken", "reduce", "reported", "anywhere", "anywhere")
STAGES = ("begun", "attached")


def processes(word: str) -> set[int]:
    """Daemons whose command line has this word."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if b"serve" in words and word.encode() in words and state != "Z":
                found.add(int(entry.name))
    return found


class Killer:
    """Kills daemons at seeded moments, some successors too while they come up."""

    def __init__(self, loader: Loader, dataset: str, kills: int, seed: int) -> None:
        """Kills so many daemons of this dataset, which serve this Loader."""
        self.loader, self.dataset, self.wanted = loader, dataset, kills
        self.random = random.Random(seed)
        self.dead: set[int] = set()
        self.steps = 0
        self.lock = threading.Lock()
        self.hunt: threading.Thread | None = None
        self.draw()

    def draw(self) -> None:
        """Draws what comes next."""
        self.moment = self.random.choice(MOMENTS)
        self.after = 0 if self.moment == "epoch" else self.random.randrange(8)
        self.stage = self.random.choice(STAGES) if self.random.random() < 0.4 else None

    def is_done(self) -> bool:
        """All kills are done."""
        return len(self.dead) >= self.wanted

    def at(self, moment: str, daemon: int) -> None:
        """The loop is at this moment, and has had a batch of this daemon."""
        if moment == "taken":
            self.steps += 1
        is_here = moment == self.moment or (self.moment == "anywhere" and moment == "batch")
        # A batch or two further on: three deaths before the same one are an error.
        may = self.steps >= 2 and daemon not in self.dead and daemon == self.loader.daemon_pid and not self.is_done()
        if not is_here or not may or (self.hunt is not None and self.hunt.is_alive()):
            return
        if self.after > 0:
            self.after -= 1
            return
        pause = self.random.random() * 0.02 if self.moment == "anywhere" else 0.0
        self.steps = 0
        self.dead.add(daemon)
        self.hunt = threading.Thread(target=self.strike, args=(daemon, pause, self.stage), daemon=True)
        self.hunt.start()
        if pause == 0.0:
            # Dead before the loop goes on.
            while daemon in processes(self.dataset):
                time.sleep(0.0005)
        self.draw()

    def strike(self, daemon: int, pause: float, stage: str | None) -> None:
        """Kills a daemon, and its successor at this stage."""
        time.sleep(pause)
        with suppress(ProcessLookupError):
            os.kill(daemon, signal.SIGKILL)
        until = time.monotonic() + 30
        while stage is not None and time.monotonic() < until:
            there = processes(self.dataset) if stage == "begun" else {self.loader.daemon_pid}
            for successor in there - self.dead:
                with suppress(ProcessLookupError):
                    os.kill(successor, signal.SIGKILL)
                self.dead.add(successor)
                return
            time.sleep(0.0005)


def rows(batch: Batch) -> list[int]:
    """A checksum of each row: all that was delivered of it, and its fields."""
    columns = zip(batch.ids, batch.labels, batch.weights, batch.images, batch.fields(), strict=True)
    return [
        zlib.crc32(repr((int(id), int(label), float(weight), fields)).encode() + image.numpy().tobytes())
        for id, label, weight, image, fields in columns
    ]


def main() -> None:
    """Trains, kills, notes."""
    dataset, folder = sys.argv[1], Path(sys.argv[2])
    rank, world, kills, seed, epochs = map(int, sys.argv[3:])
    torch.set_num_threads(1)
    model: torch.nn.Module = torch.nn.Linear(1, 1)
    if world > 1:
        meeting = f"file://{folder}/meeting-{epochs}"
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
        model = torch.nn.parallel.DistributedDataParallel(model)
    started, daemon, epoch, is_over = time.monotonic(), 0, 0, False
    # More die here within an hour than a training would put up with.
    settings = Daemon(job="kills", ring=1, linger=0.2, deaths_max=10_000)
    with (
        (folder / f"note-{rank}").open("w") as note,
        warnings.catch_warnings(record=True) as caught,
        Loader(dataset, BATCH, decode=DECODE, seed=3, daemon=settings) as loader,
    ):
        warnings.simplefilter("always")
        killer = Killer(loader, dataset, kills if rank == 0 else 0, seed)
        while not is_over:
            killer.at("epoch", daemon)
            batches = iter(loader)
            while True:
                killer.at("batch", daemon)
                before = loader.daemon_pid
                batch = next(batches, None)
                if batch is None:
                    break
                # One that was found meanwhile counts from its second batch on.
                giver = loader.daemon_pid
                daemon = giver if giver == before else daemon
                at = time.monotonic() - started
                note.write(json.dumps([epoch, batch.index, rows(batch), at, giver]) + "\n")
                killer.at("taken", daemon)
                loss = model(torch.ones(1, 1)).sum()
                killer.at("reduce", daemon)
                # The gradient's sum goes over gloo.
                loss.backward()
                loader.report(batch, [float(sample) for sample in batch.ids.tolist()])
                killer.at("reported", daemon)
            epoch += 1
            over = torch.tensor([float(killer.is_done() if epochs == 0 else epoch >= epochs)])
            if world > 1:
                torch.distributed.broadcast(over, 0)
            is_over = bool(over.item())
        # A rank that has left is waited for in vain.
        if world > 1:
            torch.distributed.barrier()
        if killer.hunt is not None:
            killer.hunt.join()
        successors = loader.stats()["successors"]
        told = sum("has taken its place" in str(warning.message) for warning in caught)
        if world > 1:
            torch.distributed.barrier()
        about = {"kills": len(killer.dead), "epochs": epoch, "warnings": told, "successors": successors}
        note.write(json.dumps(about) + "\n")
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
