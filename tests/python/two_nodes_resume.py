"""One rank of a training that is stopped or goes on in the middle of an epoch: what it is given, as JSON.

Arguments: dataset, folder for results, a state to load or "", the number of batches to take or 0 for all.
"""

import json
import pickle
import sys
from itertools import islice
from pathlib import Path

import torch
from shade_load import Loader, Plan


def main() -> None:
    dataset, out, state = (Path(argument) for argument in sys.argv[1:4])
    most = int(sys.argv[4]) or None
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    with Loader(dataset, 4, plan=Plan(sampler="uniform")) as loader:
        if state.is_file():
            loader.load_state_dict(pickle.loads(state.read_bytes()))
        ids = [batch.ids.tolist() for batch in islice(loader, most)]
        facts = {"ids": ids, "daemon": loader.daemon_pid}
        if rank == 0:
            # The only one that is saved.
            (out / "state").write_bytes(pickle.dumps(loader.state_dict()))
        torch.distributed.barrier()
    (out / f"rank-{rank}.json").write_text(json.dumps(facts))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
