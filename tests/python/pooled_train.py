"""One rank of trainings whose nodes draw one plan together: what it is given, as JSON.

Arguments: the folder with the datasets, one for results, and "kill" to kill daemons meanwhile.
"""

import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from shade_load import Batch, Daemon, Loader, LoaderTimeout, Plan, ShadeError

EPOCHS = 3
PATIENT = Daemon(timeout=600.0)


def kinds(root: Path) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """What is drawn as a whole: its name, the dataset, and arguments of a Loader."""
    first, second = root / "first.shade", root / "second.shade"
    yield "whole", first, {"plan": Plan(sampler="pads", strata=1)}
    yield "ahead", first, {"plan": Plan(sampler="pads", strata=1, draw_ahead=True)}
    yield "subset", first, {"plan": Plan(sampler="pads", indices=range(3, 31))}
    yield "fewer", first, {"plan": Plan(sampler="infobatch")}
    yield "covered", first, {"plan": Plan(sampler="replacement", cover=2, strata=1)}
    yield "mixture", [(first, 0.6), (second, 0.4)], {"plan": Plan(sampler="pads"), "seed": 5}
    yield "part", [(first, 0.6), (second, 0.4, "pads")], {}
    yield "buckets", first, {"plan": Plan(sampler="pads", bucket=[(16, 24), (24, 16)])}


def report(loader: Loader, batch: Batch) -> list[int]:
    """Reports losses that follow from the samples, which are returned."""
    ids = batch.ids.tolist()
    loader.report(batch, [float(sample * 37 % 101) for sample in ids])
    return ids


def train(dataset: Any, kills: bool, **arguments: Any) -> list[list[list[int]]]:
    """By epoch and batch: what came."""
    rank = torch.distributed.get_rank()
    with Loader(dataset, 4, daemon=PATIENT, **arguments) as loader:
        given = []
        for epoch in range(EPOCHS):
            batches = iter(loader)
            # Daemons die: of one node perhaps before it has told its scores, or heard others'.
            if kills and rank == 2 and epoch == 2:
                os.kill(loader.daemon_pid, signal.SIGKILL)
            of_epoch = []
            for batch in batches:
                of_epoch.append(report(loader, batch))
                if kills and rank == 0 and epoch == 1 and len(of_epoch) == 2:
                    os.kill(loader.daemon_pid, signal.SIGKILL)
            given.append(of_epoch)
        torch.distributed.barrier()
    return given


def resume(dataset: Path, out: Path) -> dict[str, Any]:
    """An epoch, and the next one by the state that rank 0 saves in the middle of it. Then each node loads its own."""
    plan, rank = Plan(sampler="pads", strata=1), torch.distributed.get_rank()
    with Loader(dataset, 4, plan=plan, daemon=PATIENT) as loader:
        for batch in loader:
            report(loader, batch)
        batches = iter(loader)
        begun = [report(loader, next(batches)) for _ in range(2)]
        torch.distributed.barrier()
        (out / f"state-{rank}").write_bytes(pickle.dumps(loader.state_dict()))
        rest = [report(loader, batch) for batch in batches]
        torch.distributed.barrier()

    def go_on(number: int | None) -> list[list[list[int]]]:
        with Loader(dataset, 4, plan=plan, daemon=PATIENT) as loader:
            if number is not None:
                loader.load_state_dict(pickle.loads((out / f"state-{number}").read_bytes()))
            given = [[report(loader, batch) for batch in loader] for _ in range(3)]
            torch.distributed.barrier()
        return given

    resumed = go_on(0)
    told = []
    for number in (rank - rank % 2, 0 if rank < 2 else None):
        try:
            go_on(number)
        except ShadeError as error:
            told.append(str(error))
        torch.distributed.barrier()
    return {"begun": begun, "rest": rest, "resumed": resumed, "told": told}


def wait_for_nobody(dataset: Path, out: Path) -> str:
    """The first node asks for an epoch, and the second one does not for long."""
    rank = torch.distributed.get_rank()
    late = out / f"late-{rank ^ 2}"
    with Loader(dataset, 4, plan=Plan(sampler="pads", strata=1), daemon=PATIENT) as loader:
        # Only now: on a busy machine ranks may take longer to meet.
        loader._patience.seconds = 5.0
        torch.distributed.barrier()
        told = "none"
        if rank < 2:
            try:
                next(iter(loader))
            except LoaderTimeout as error:
                told = str(error)
            (out / f"late-{rank}").touch()
        else:
            while not late.exists():
                time.sleep(0.05)
        torch.distributed.barrier()
    return told


def main() -> None:
    root, out = Path(sys.argv[1]), Path(sys.argv[2])
    kills = sys.argv[3:] == ["kill"]
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    told: dict[str, Any] = {name: train(dataset, kills, **arguments) for name, dataset, arguments in kinds(root)}
    if not kills:
        told["resume"] = resume(root / "first.shade", out)
        told["waits"] = wait_for_nobody(root / "first.shade", out)
    (out / f"rank-{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
