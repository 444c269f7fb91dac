"""What scripts ask of a DataLoader, as a Loader has it; for the rest an error that says what to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, NoReturn

from .daemon import Daemon
from .plan import Plan

# For each argument of a DataLoader that a Loader does not have: its counterpart.
COUNTERPARTS = {
    "shuffle": 'shuffling is the default; in order is train=False, or plan=Plan(sampler="sequential")',
    "num_workers": (
        "threads of the daemon decode, daemon=Daemon(workers=...) says how many; for a function of single samples "
        "transform=PerSample(function, workers=...)"
    ),
    "prefetch_factor": "the daemon fills a ring, daemon=Daemon(ring=...) is its size",
    "pin_memory": 'device="cuda:0" pins the ring and copies',
    "pin_memory_device": 'device="cuda:0" pins the ring and copies',
    "drop_last": 'plan=Plan(tail="drop") drops the last batch, tail="even" keeps it',
    "batch_sampler": "batch_size is an argument, the samples are those of plan=Plan(sampler=...)",
    "collate_fn": "batches are made by the daemon; without image_size and decode you get raw records to collate",
    "generator": "seed=... is the seed of all random draws",
    "worker_init_fn": "there are no worker processes; seed=... is the seed of all random draws",
    "multiprocessing_context": "there are no worker processes",
    "persistent_workers": "there are no worker processes, and the daemon stays between epochs",
    "in_order": "batches always come in the order of the plan",
    "num_replicas": "world_size=... says how many ranks there are",
    "target_transform": "apply it to the labels of each batch",
}


class AsDataLoader(ABC):
    """Base of Loader: the attributes of a DataLoader, which nobody can change."""

    # Processes of a function of PerSample.
    _workers = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def set_epoch(self, epoch: int) -> None: ...

    @property
    @abstractmethod
    def batch_size(self) -> int: ...

    @property
    @abstractmethod
    def drop_last(self) -> bool: ...

    @abstractmethod
    def _samples_per_rank(self) -> int: ...

    @property
    def sampler(self) -> EpochSampler:
        """An object with `set_epoch` and a length, in place of a DistributedSampler."""
        return EpochSampler(self)

    @property
    def batch_sampler(self) -> EpochBatchSampler:
        """An object with `set_epoch`, a length, and the `sampler`, in place of a BatchSampler."""
        return EpochBatchSampler(self)

    @property
    def num_workers(self) -> int:
        """Processes of `PerSample`; 0 without it: the daemon makes the batches."""
        return self._workers

    @property
    def pin_memory(self) -> bool:
        """False: no thread copies batches to pinned memory."""
        return False

    @property
    def persistent_workers(self) -> bool:
        """Whether there are processes of `PerSample`, which stay between epochs."""
        return self._workers > 0

    @property
    def collate_fn(self) -> None:
        """None: the daemon makes the batches."""

    @property
    def worker_init_fn(self) -> None:
        """None: `PerSample` has none."""

    @worker_init_fn.setter
    def worker_init_fn(self, function: object) -> None:
        """Nothing: Lightning sets one after `seed_everything(workers=True)`, and there is no worker to call it."""

    @property
    def prefetch_factor(self) -> None:
        """None: batches are not made ahead by process."""

    @property
    def multiprocessing_context(self) -> None:
        """None: nobody chooses one."""

    @property
    def generator(self) -> None:
        """None: all random draws follow from the seed."""

    def __getitem__(self, index: object) -> NoReturn:
        raise TypeError(
            "a Loader is no Dataset: it gives batches, so iterate over it in place of a DataLoader. For a DataLoader of "
            "your own there is shade_load.ImageFolder"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Loader is a rank's connection to the daemon, and cannot be copied or pickled: make one in each process that "
            "needs one, inside the function that mp.spawn or Process runs, and hand over its arguments instead"
        )


class EpochSampler:
    """What a script finds as `loader.sampler`. The daemon draws the samples: it has no iterator."""

    def __init__(self, loader: AsDataLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        """Samples per epoch and rank, as DistributedSampler counts them: a rank may get one less."""
        return self._loader._samples_per_rank()

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the Loader's next epoch."""
        self._loader.set_epoch(epoch)

    def __iter__(self) -> NoReturn:
        raise TypeError("the daemon draws the samples: `batch.ids` has those of each batch of the Loader")


class EpochBatchSampler(EpochSampler):
    """What a script finds as `loader.batch_sampler`."""

    @property
    def sampler(self) -> EpochSampler:
        return self._loader.sampler

    @property
    def batch_size(self) -> int:
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        return self._loader.drop_last

    def __len__(self) -> int:
        """Batches per epoch and rank."""
        return len(self._loader)


def misplaced(arguments: Mapping[str, object], known: Collection[str]) -> TypeError:
    """The error for unknown arguments.

    It names those of a Plan or a Daemon, a DataLoader's counterparts, and what a mistyped one may be among all these
    and the `known` ones of a Loader.
    """
    places = {field.name: kind.__name__ for kind in (Plan, Daemon) for field in fields(kind)}

    def told(name: str, value: Any) -> str:
        if name in places:
            return f"{name} belongs into {places[name].lower()}={places[name]}({name}={value!r})"
        if name in COUNTERPARTS:
            return f"{name} is a DataLoader's: leave it out; {COUNTERPARTS[name]}"
        meant = get_close_matches(name, [*known, *places, *COUNTERPARTS], n=1, cutoff=0.7)
        if not meant:
            return f"there is no argument {name!r}"
        is_elsewhere = meant[0] in places or meant[0] in COUNTERPARTS
        return f"there is no argument {name!r}; " + (told(meant[0], value) if is_elsewhere else f"{meant[0]!r} is one")

    return TypeError(f"Loader: {'; '.join(told(*argument) for argument in arguments.items())}")
