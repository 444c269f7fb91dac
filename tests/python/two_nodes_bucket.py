"""One rank of a training on two nodes, started by torchrun, under several samplers: what it is given, as JSON.

Arguments: the dataset's folder or address, and the folder for results.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from shade_load import Daemon, Loader, Plan

EPOCHS = 2
# Those that the tests of two nodes on a folder use.
PLANS = {
    "uniform": Plan(sampler="uniform"),
    "pads": Plan(sampler="pads"),
    "replacement": Plan(sampler="replacement"),
    "mixed": Plan(sampler="uniform", strata=8, mix=0.5),
}


def train(dataset: str, name: str, plan: Plan) -> dict[str, Any]:
    """Ids, labels and pixels of each epoch, by a job of this name; the daemon, and the records it was asked for."""
    arguments = {"image_size": 16, "cache": "50%", "plan": plan, "daemon": Daemon(job=name)}
    with Loader(dataset, 4, **arguments) as loader:
        epochs = []
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            given = []
            for batch in loader:
                loader.report(batch, (batch.ids * 37 % 61).float())
                pixels = [hashlib.sha256(image.numpy().tobytes()).hexdigest() for image in batch.images]
                given += zip(batch.ids.tolist(), batch.labels.tolist(), pixels, strict=True)
            epochs.append(given)
        # All ranks have ended the epoch before one leaves.
        torch.distributed.barrier()
        stats = loader.stats()["total"]
        figures = {"daemon": loader.daemon_pid, "accesses": stats["accesses"], "faults": stats["faults"]}
        torch.distributed.barrier()
    return {"epochs": epochs, **figures}


def main() -> None:
    dataset, out = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    told = {name: train(dataset, name, plan) for name, plan in PLANS.items()}
    (out / f"rank-{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
