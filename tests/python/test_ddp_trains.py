"""Two DDP processes train through one daemon: equal batch counts, equal models, one shared cache."""

import hashlib
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import packed
import pytest
from shade_load import Daemon, Loader, Plan

torch = pytest.importorskip("torch")

WORLD = 2
EPOCHS = 3


def train(path: Path, meeting: Path, rank: int) -> dict:
    """One rank's training. Rank and world size come from torch.distributed."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    side = packed.SIDE
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * side * side, len(packed.CLASSES)))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = torch.nn.CrossEntropyLoss(reduction="none")
    batches, ids = [], []
    plan, daemon = Plan(sampler="pads", cover=0), Daemon(job="ddp")
    with Loader(path, 8, image_size=side, cache="50%", plan=plan, daemon=daemon) as loader:
        assert (loader.rank, loader.world_size) == (rank, WORLD)
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            ids.append([])
            count = 0
            for batch in loader:
                loss = criterion(model(batch.images.float() / 255), batch.labels)
                loader.report(batch, loss)
                optimizer.zero_grad()
                loss.mean().backward()
                optimizer.step()
                ids[-1] += batch.ids.tolist()
                count += 1
            batches.append(count)
        # Both have ended the epoch before either asks for the figures or leaves.
        torch.distributed.barrier()
        stats, daemon = loader.stats(), loader.daemon_pid
        torch.distributed.barrier()
    weights = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
    torch.distributed.destroy_process_group()
    return {
        "batches": batches,
        "ids": ids,
        "daemon": daemon,
        "stats": stats,
        "model": hashlib.sha256(weights).hexdigest(),
    }


def test_two_ranks_train_through_one_daemon(tmp_path: Path) -> None:
    packed.image_folder(tmp_path / "folder", "png")
    dataset = packed.pack(tmp_path / "folder", tmp_path / "data.shade")
    with ProcessPoolExecutor(WORLD, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(train, dataset.path, tmp_path / "meeting", rank) for rank in range(WORLD)]
        ranks = [run.result() for run in runs]
    assert ranks[0]["batches"] == ranks[1]["batches"] == [4] * EPOCHS
    assert ranks[0]["model"] == ranks[1]["model"]
    assert ranks[0]["daemon"] == ranks[1]["daemon"]
    for epoch in range(EPOCHS):
        assert sum(len(rank["ids"][epoch]) for rank in ranks) == len(dataset)
    assert sorted(ranks[0]["ids"][0] + ranks[1]["ids"][0]) == list(range(len(dataset)))
    # One cache: the figures count both ranks' accesses, and both ranks get the same.
    totals = [rank["stats"]["total"] for rank in ranks]
    assert totals[0]["accesses"] == totals[1]["accesses"] == EPOCHS * len(dataset)
    assert totals[0]["hits"] > 0
