"""One rank of a training on two nodes that goes on from the last saved state: notes what it is given.

Arguments: dataset, folder for notes and the state, number of epochs, sampler. A line of a note is [epoch, batch, ids,
labels].
"""

import json
import os
import pickle
import sys
import time
from pathlib import Path

import torch
from shade_load import Daemon, Loader, Plan

BATCH = 10
# Batches of a rank between two states.
SAVED_EVERY = 7
STEP_SECONDS = 0.02


def main() -> None:
    dataset, out, epochs, plan = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Plan(sampler=sys.argv[4])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    state = out / "state"
    daemon = Daemon(job="killed", linger=20)
    with (
        Loader(dataset, BATCH, cache="50%", plan=plan, daemon=daemon) as loader,
        (out / f"note-{rank}-{time.time_ns()}-{os.getpid()}").open("w") as note,
    ):
        if state.exists():
            loader.load_state_dict(pickle.loads(state.read_bytes()))
        while (epoch := loader.state_dict()["epoch"]) < epochs:
            for taken, batch in enumerate(loader, start=1):
                note.write(json.dumps([epoch, batch.index, batch.ids.tolist(), batch.labels.tolist()]) + "\n")
                note.flush()
                loader.report(batch, [float(sample * 37 % 101) for sample in batch.ids.tolist()])
                time.sleep(STEP_SECONDS)
                # The gradient's sum goes over gloo: a rank that is gone is an error here.
                model(torch.ones(1, 1)).sum().backward()
                if taken % SAVED_EVERY == 0:
                    save(loader, rank, state)
            save(loader, rank, state)
    torch.distributed.destroy_process_group()


def save(loader: Loader, rank: int, state: Path) -> None:
    """Rank 0 saves the state, once all ranks have noted their batches."""
    torch.distributed.barrier()
    if rank == 0:
        new = state.with_suffix(".new")
        new.write_bytes(pickle.dumps(loader.state_dict()))
        new.rename(state)
    # All go on from it, or none.
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
