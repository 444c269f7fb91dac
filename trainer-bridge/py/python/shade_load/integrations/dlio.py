"""DLIO, the engine of MLPerf Storage: a data loader class whose batches come from a Loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.utils.utility import DLIOMPI

from ..daemon import Daemon
from ..loader import Loader
from ..plan import Plan


class ShadeDataLoader(BaseDataLoader):
    """Batches of a packed dataset for DLIO's ranks: records as memoryviews, or images if it decodes.

        ++workload.reader.data_loader_classname=shade_load.integrations.dlio.ShadeDataLoader
        ++workload.reader.data_loader_sampler=iterative
        ++workload.framework=pytorch ++workload.reader.data_loader=pytorch
        ++workload.dataset.format=jpeg

    The dataset is `train.shade` in DLIO's data folder, and `valid.shade` for an evaluation. DLIO
    finds its number of steps by its own files: their names must be there, for a Loader they may be
    empty. An epoch is a whole permutation, without a last batch that is not full, as DLIO counts.
    """

    # The Loader's arguments beside the batch size; a subclass adds some, such as image_size=224.
    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, format_type: Any, dataset_type: DatasetType, epoch: int) -> None:
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.PYTORCH)
        self.loader: Loader | None = None

    def read(self) -> None:
        """Makes the Loader. DLIO calls it once, in all ranks, before the first epoch."""
        trains, mpi = self.dataset_type is DatasetType.TRAIN, DLIOMPI.get_instance()
        dataset = Path(self._args.data_folder, "train.shade" if trains else "valid.shade")
        own = {"seed": self._args.seed, "plan": Plan(tail="drop"), "daemon": Daemon(exchange=mpi.comm().allgather)}
        ranks = {"rank": mpi.rank(), "world_size": mpi.size()}
        self.loader = Loader(dataset, self.batch_size, train=trains, **ranks, **(own | self.options))

    def next(self) -> Iterator[list[memoryview] | Any]:
        """One epoch's batches. DLIO takes as many as it has steps, and asks for no more."""
        super().next()
        assert self.loader is not None, "DLIO reads before it asks for a batch"
        # DLIO's epochs begin at 1.
        self.loader.set_epoch(self.epoch_number - 1)
        self.epoch_number += 1
        for batch in self.loader:
            yield batch.records.memoryviews() if "records" in batch else batch.images

    def finalize(self) -> None:
        """Nothing: DLIO calls it after each epoch. The Loader ends with the process."""
