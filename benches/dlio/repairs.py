"""What DLIO 392621b (`mlperf_storage_v2.0`) needs to run here: all that this bench changes in it.

1. Barriers sleep. Open MPI's spin, and on few cores the ranks that wait take the time of those that
   load. It applies to all rows alike.
2. `tensorflow_io` is an empty module: DLIO imports it, uses nothing of it, and there is none for
   this TensorFlow.
3. DALI's reader is told its rank: DLIO gives it the number of shards alone, so that all ranks read
   the first.
4. The map of samples to files of DLIO's PyTorch reader is not written out: for each sample it makes
   a text of the whole map, for a log that nobody reads. That takes 39 ms for 60,000 samples.
5. DALI's loader needs `reader.data_loader_sampler`, which is an option and no repair: `rows.py`."""

from __future__ import annotations

import importlib.util
import sys
import time
from types import ModuleType
from typing import Any

# Between two looks at a barrier.
PAUSE_SECONDS = 0.001


def apply(workload_options: list[str]) -> None:
    """Applies them, before DLIO's main program is imported."""
    if importlib.util.find_spec("tensorflow_io") is None:
        sys.modules["tensorflow_io"] = ModuleType("tensorflow_io")
    _let_barriers_sleep()
    _keep_maps_quiet()
    if any(option.endswith("data_loader=native_dali") for option in workload_options):
        _tell_dali_its_rank()


class SleepingBarriers:
    """A communicator of mpi4py whose barriers sleep."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def barrier(self) -> None:
        """Waits for all ranks."""
        request = self._comm.Ibarrier()
        while not request.Test():
            time.sleep(PAUSE_SECONDS)


def _let_barriers_sleep() -> None:
    from dlio_benchmark.utils.utility import DLIOMPI

    bare = DLIOMPI.comm
    DLIOMPI.comm = lambda mpi: SleepingBarriers(bare(mpi))


class QuietMap(dict[Any, Any]):
    """A map whose text is short."""

    def __format__(self, _form: str) -> str:
        return f"a map of {len(self)}"


def _keep_maps_quiet() -> None:
    from dlio_benchmark.utils.config import ConfigArguments

    made = ConfigArguments.get_global_map_index

    def quiet(*arguments: Any) -> Any:
        files, total = made(*arguments)
        return QuietMap(files), total

    ConfigArguments.get_global_map_index = quiet


def _tell_dali_its_rank() -> None:
    from dlio_benchmark.utils.utility import DLIOMPI
    from nvidia.dali import fn

    bare = fn.readers.tfrecord

    def of_this_rank(*arguments: Any, **options: Any) -> Any:
        return bare(*arguments, shard_id=DLIOMPI.get_instance().rank(), **options)

    fn.readers.tfrecord = of_this_rank
