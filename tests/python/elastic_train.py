"""One rank under torchrun, which starts it again: goes on from the last saved state, and notes what it is given.

Arguments: dataset, folder for notes and the state. The first attempt's rank 1 kills itself in the middle of an epoch.
"""

import json
import os
import pickle
import signal
import sys
from pathlib import Path

import torch
from killed_train import save
from shade_load import Daemon, Loader, Plan

EPOCHS = 3
BATCH = 3
# Batches of a rank between two states.
SAVED_EVERY = 4
# Epoch and batch before which rank 1 dies.
DEATH = (1, 6)
PLAN = Plan(sampler="pads")


def losses(ids: list[int]) -> list[float]:
    return [float(sample * 37 % 101) for sample in ids]


def main() -> None:
    dataset, out = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, attempt = torch.distributed.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    # So that it hears of the other one's end by itself, before torchrun ends it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        train(dataset, out, rank, attempt)
    except Exception as error:
        (out / f"error-{rank}-{attempt}").write_text(repr(error))
        raise
    torch.distributed.destroy_process_group()


def train(dataset: Path, out: Path, rank: int, attempt: int) -> None:
    state = out / "state"
    daemon = Daemon(linger=60)
    with (
        Loader(dataset, BATCH, cache="100%", plan=PLAN, seed=3, daemon=daemon) as loader,
        (out / f"note-{rank}-{attempt}").open("w") as note,
    ):
        if state.exists():
            loader.load_state_dict(pickle.loads(state.read_bytes()))
        found = {"daemon": loader.daemon_pid, "resident": loader.stats()["resident"], "job": loader.job}
        (out / f"found-{rank}-{attempt}").write_text(json.dumps(found))
        while (epoch := loader.state_dict()["epoch"]) < EPOCHS:
            for batch in loader:
                if (rank, attempt, epoch, batch.index) == (1, 0, *DEATH):
                    os.kill(os.getpid(), signal.SIGKILL)
                ids = batch.ids.tolist()
                note.write(json.dumps([epoch, batch.index, ids]) + "\n")
                note.flush()
                loader.report(batch, losses(ids))
                # As gradients are added: a rank that is gone is an error here.
                torch.distributed.all_reduce(torch.ones(1))
                if (batch.index + 1) % SAVED_EVERY == 0:
                    save(loader, rank, state)
            save(loader, rank, state)


if __name__ == "__main__":
    main()
