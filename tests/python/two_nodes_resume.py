"""One rank of a training that is stopped or goes on in the middle of an epoch: what it is given, as JSON.

Arguments: dataset, folder for results, a state to load or "", the number of batches before the state is saved or 0 for
all, and the sampler. Without a state, an epoch is trained before.
"""

import json
import pickle
import sys
from itertools import islice
from pathlib import Path

import torch
from shade_load import Batch, Loader, Plan, scores


def report(loader: Loader, batch: Batch) -> list[int]:
    """Reports losses that follow from the samples, which are returned."""
    ids = batch.ids.tolist()
    loader.report(batch, [float(sample * 37 % 101) for sample in ids])
    return ids


def main() -> None:
    dataset, out, state = (Path(argument) for argument in sys.argv[1:4])
    most, sampler = int(sys.argv[4]) or None, sys.argv[5]
    # A busy machine may take longer than a user would wait.
    scores.SCORES_SECONDS = 120.0
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    with Loader(dataset, 4, plan=Plan(sampler=sampler)) as loader:
        if state.is_file():
            loader.load_state_dict(pickle.loads(state.read_bytes()))
        else:
            for batch in loader:
                report(loader, batch)
        batches = iter(loader)
        ids = [report(loader, batch) for batch in islice(batches, most)]
        if rank == 0:
            # The only one that is saved.
            (out / "state").write_bytes(pickle.dumps(loader.state_dict()))
        rest = [report(loader, batch) for batch in batches]
        facts = {"ids": ids, "rest": rest, "daemon": loader.daemon_pid}
        torch.distributed.barrier()
    (out / f"rank-{rank}.json").write_text(json.dumps(facts))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
