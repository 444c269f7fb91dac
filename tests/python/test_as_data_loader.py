"""What scripts read of a DataLoader and call on its parts: a Loader has it, with the meaning that it has there."""

import math
from contextlib import nullcontext
from typing import Any

import packed
import pytest
import sample_functions
from shade_load import Daemon, Loader, PerSample, Plan
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch = pytest.importorskip("torch")

BATCH = 8
# What a DataLoader without workers says of itself.
THEIRS = DataLoader(TensorDataset(torch.zeros(61)), BATCH)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("attributes")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def opened(dataset: packed.Packed, **options: Any) -> Loader:
    options = {"daemon": Daemon(job="attributes"), "image_size": packed.SIDE, **options}
    return Loader(dataset.path, BATCH, **options)


NAMES = (
    "num_workers", "pin_memory", "collate_fn", "prefetch_factor", "persistent_workers", "generator",
    "multiprocessing_context",
)  # fmt: skip


@pytest.mark.parametrize("name", [*NAMES, "worker_init_fn"])
def test_it_says_what_a_data_loader_without_workers_says(dataset: packed.Packed, name: str) -> None:
    with opened(dataset) as loader:
        expected = getattr(THEIRS, name)
        # A DataLoader has a function for what is not asked for.
        expected = None if callable(expected) else expected
        assert getattr(loader, name) == expected
        # Lightning sets this one.
        with nullcontext() if name == "worker_init_fn" else pytest.raises(AttributeError):
            setattr(loader, name, print)
        assert getattr(loader, name) == expected


def test_it_says_how_many_processes_call_a_function_of_samples(dataset: packed.Packed) -> None:
    with opened(dataset, transform=PerSample(sample_functions.pixels, workers=2)) as loader:
        assert loader.num_workers == 2 and loader.persistent_workers is True
        with pytest.raises(AttributeError):
            loader.num_workers = 3


@pytest.mark.parametrize("part", ["sampler", "batch_sampler", "dataset"])
def test_the_epoch_can_be_told_to_any_part(dataset: packed.Packed, part: str) -> None:
    with opened(dataset) as loader:
        order = {epoch: [batch.ids.tolist() for batch in loader] for epoch in range(3)}
        for epoch in (2, 0, 1, 1):
            getattr(loader, part).set_epoch(epoch)
            assert [batch.ids.tolist() for batch in loader] == order[epoch]
        state = loader.state_dict()
        batches = iter(loader)
        getattr(loader, part).set_epoch(1)
        assert [batch.ids.tolist() for batch in batches] == order[1], "also to an iterator that has given nothing"
        loader.load_state_dict(state)
        kept = getattr(loader, part)
    with pytest.raises(RuntimeError, match="closed"):
        kept.set_epoch(1)


@pytest.mark.parametrize("tail", ["even", "drop", "pad"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
@pytest.mark.parametrize("indices", [None, range(50)])
def test_lengths_are_those_of_a_distributed_sampler(
    dataset: packed.Packed, world_size: int, tail: Any, indices: Any
) -> None:
    samples = len(dataset) if indices is None else len(indices)
    plan = Plan(tail=tail, indices=indices)
    with opened(dataset, rank=0, world_size=world_size, plan=plan, daemon=Daemon(job=f"{tail}-{world_size}")) as loader:
        theirs = DistributedSampler(range(samples), num_replicas=world_size, rank=0)
        is_whole = tail != "drop" or len(loader) * BATCH >= len(theirs)
        assert len(loader.sampler) == (len(theirs) if is_whole else len(loader) * BATCH)
        assert len(loader.batch_sampler) == len(loader)
        assert loader.drop_last == (tail == "drop") == loader.batch_sampler.drop_last
        assert loader.batch_sampler.batch_size == BATCH == loader.batch_size
        assert len(loader.batch_sampler.sampler) == len(loader.sampler)
        if tail == "even":
            # As pytorch/examples asks whether samples are left over.
            assert not len(loader.sampler) * world_size < samples
            assert len(loader) == math.ceil(math.ceil(samples / world_size) / BATCH)


def test_the_samples_themselves_are_not_there(dataset: packed.Packed) -> None:
    with opened(dataset) as loader:
        for part in (loader.sampler, loader.batch_sampler):
            with pytest.raises(TypeError, match="batch.ids"):
                list(part)
