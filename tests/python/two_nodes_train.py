"""One rank of a training on two nodes, started by torchrun: what it is told and given, as JSON."""

import hashlib
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from shade_load import Daemon, Loader, LoaderTimeout, Plan, ShadeError

EPOCHS = 3
BATCH = 4
# A fifth of it is the time after which a rank that makes no Loader is missed.
IMPATIENT = Daemon(job="impatient", timeout=10.0)


def refusal(*args: Any, **arguments: Any) -> str:
    """The text of the error that this Loader ends with."""
    try:
        Loader(*args, **arguments).close()
    except LoaderTimeout as error:
        return f"timeout: {error}"
    except ShadeError as error:
        return str(error)
    return "none"


def refusals(here: Path, other: Path, out: Path, rank: int) -> dict[str, str]:
    """What this rank is told where the ranks do not fit together."""
    told = {}
    if rank == 3:
        # It makes its Loader when the others have given up.
        while not all((out / f"gave-up-{waits}").exists() for waits in range(3)):
            time.sleep(0.01)
    told["absent"] = refusal(here, BATCH, daemon=IMPATIENT)
    (out / f"gave-up-{rank}").touch()
    torch.distributed.barrier()
    told["batch_size"] = refusal(here, BATCH + (rank == 3))
    told["dataset"] = refusal(other, BATCH)
    missing = here.with_name(f"damaged-{rank}.shade") if rank == 2 else here
    told["damaged"] = refusal(missing, BATCH)
    return told


def train(path: Path, strata: int | None) -> dict[str, Any]:
    """Trains a model with DDP. The arguments are those of one node."""
    side = 16
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * side * side, 3))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loader(path, BATCH, image_size=side, cache="50%", plan=Plan(sampler="pads", strata=strata)) as loader:
        epochs = []
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            ids, labels, batches = [], [], 0
            for batch in loader:
                loss = torch.nn.functional.cross_entropy(model(batch.images.float() / 255), batch.labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                # Losses that do not depend on the order in which gradients are added.
                loader.report(batch, (batch.ids * 37 % 61).float())
                ids += batch.ids.tolist()
                labels += batch.labels.tolist()
                batches += 1
            epochs.append({"ids": ids, "labels": labels, "batches": batches})
        # All ranks have ended the epoch before one leaves.
        torch.distributed.barrier()
        figures = {
            "epochs": epochs,
            "daemon": loader.daemon_pid,
            "tcp": tcp_sockets(loader.daemon_pid),
            "accesses": loader.stats()["total"]["accesses"],
            "placement": [loader._job["ranks_here"], loader._job["plan"]["strata"]],
            "state": loader.state_dict()["epoch"],
        }
        torch.distributed.barrier()
    weights = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
    return {**figures, "model": hashlib.sha256(weights).hexdigest()}


def tcp_sockets(pid: int) -> int:
    """The number of a process's TCP sockets."""
    tables = [Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    inodes = {f"socket:[{line.split()[9]}]" for table in tables for line in table}
    count = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        # It may be closed by now.
        with suppress(FileNotFoundError):
            count += os.readlink(fd) in inodes
    return count


def validate(path: Path, rank: int) -> dict[str, list[int]]:
    """Validation by rank 0 alone, then by all ranks."""
    seen: dict[str, list[int]] = {"alone": [], "all": []}
    if rank == 0:
        with Loader(path, BATCH, train=False, rank=0, world_size=1, daemon=Daemon(job="alone")) as loader:
            seen["alone"] = [sample for batch in loader for sample in batch.ids.tolist()]
    with Loader(path, BATCH, train=False) as loader:
        seen["all"] = [sample for batch in loader for sample in batch.ids.tolist()]
        torch.distributed.barrier()
    return seen


def main() -> None:
    here, other, out = (Path(argument) for argument in sys.argv[1:4])
    strata = int(sys.argv[4]) or None
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    told = refusals(here, other, out, rank) if strata is None else {}
    result = {"told": told, **train(here, strata), "validated": validate(here, rank)}
    (out / f"rank-{rank}.json").write_text(json.dumps(result))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
