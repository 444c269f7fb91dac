"""The two sides of a comparison: what reads sets of samples, batch by batch."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from .. import Daemon, Loader, Plan, ShadeError

# One pass over a set: the number of samples of each batch.
Epoch = Callable[[], Iterator[int]]
# Batches that are under way for each worker: torch's default.
_PREFETCH = 2


class Side(Protocol):
    """Reads sets of samples."""

    name: str

    def opened(self, ids: Sequence[int], seed: int) -> AbstractContextManager[Epoch]:
        """Prepares passes over a set, each in random order."""

    def processes(self) -> list[int]:
        """Processes that work for it, beside this one."""

    def operations(self, records: int) -> int:
        """Operations of the file system for these records of the last pass, as far as they are known."""

    def close(self) -> None: ...


def cpu_s(side: Side) -> float:
    """CPU time of this process and of those that work for a side."""
    ticks = 0
    for pid in side.processes():
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def read_file(path: str) -> bytes:
    """The file's bytes, as PIL and torchvision read them."""
    with open(path, "rb") as file:
        return file.read()


class Files:
    """The images as a map-style dataset: the batch of a list of samples. DataLoader's workers have it."""

    def __init__(self, paths: dict[int, str], image_size: int | None) -> None:
        self.paths, self.image_size = paths, image_size
        self._transform: Any = None

    def __getitem__(self, ids: list[int]) -> Any:
        """Without a size one tensor with all bytes: workers hand tensors over in shared memory."""
        torch = import_module("torch")
        image = None
        if self.image_size is not None:
            image = import_module("PIL.Image")
            if self._transform is None:
                transforms = import_module("torchvision.transforms")
                steps = [transforms.Resize(self.image_size), transforms.CenterCrop(self.image_size)]
                self._transform = transforms.Compose([*steps, transforms.PILToTensor()])
        if not ids:
            return torch.empty(0)
        records = [read_file(self.paths[sample]) for sample in ids]
        if image is None:
            return torch.frombuffer(bytearray(b"".join(records)), dtype=torch.uint8)
        opened = (image.open(io.BytesIO(record)).convert("RGB") for record in records)
        return torch.stack([self._transform(picture) for picture in opened])

    def __len__(self) -> int:
        return len(self.paths)


class DataLoaderSide:
    """torch's DataLoader, whose workers read, and decode, whole batches."""

    def __init__(self, files: Files, batch_size: int, workers: int) -> None:
        data = import_module("torch.utils.data")
        self.name, self.workers, self._batch_size = f"DataLoader, {workers} workers", workers, batch_size
        self._batches: list[list[int]] = []
        # Each "sample" of it is a batch, which `Files` makes.
        self._loader = data.DataLoader(
            files, batch_size=None, sampler=_Now(self), num_workers=workers, persistent_workers=True
        )
        before = set(multiprocessing.active_children())
        # Starts the workers, which import what they need: each has two of these batches at once.
        self._batches = [[]] * (_PREFETCH * workers)
        list(self._loader)
        self._workers = [child.pid for child in multiprocessing.active_children() if child not in before]

    @contextmanager
    def opened(self, ids: Sequence[int], seed: int) -> Iterator[Epoch]:
        def epoch() -> Iterator[int]:
            self._batches = shuffled_batches(ids, self._batch_size, seed)
            yield from (len(batch) for batch, _ in zip(self._batches, self._loader, strict=True))

        yield epoch

    def processes(self) -> list[int]:
        return [pid for pid in self._workers if pid is not None]

    def operations(self, records: int) -> int:
        """A file is opened and read."""
        return 2 * records

    def close(self) -> None:
        # Its workers end with it.
        del self._loader


class _Now:
    """The batches of the current pass: a DataLoader with persistent workers keeps its sampler."""

    def __init__(self, side: DataLoaderSide) -> None:
        self._side = side

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._side._batches)

    def __len__(self) -> int:
        return len(self._side._batches)


class PoolSide:
    """Threads that read files as a DataLoader's workers do. It stands in where there is no torch."""

    def __init__(self, files: Files, batch_size: int, workers: int) -> None:
        self.name, self.workers, self._batch_size = f"thread pool of {workers}, as there is no torch", workers, batch_size
        self._files, self._pool = files, ThreadPoolExecutor(workers)

    @contextmanager
    def opened(self, ids: Sequence[int], seed: int) -> Iterator[Epoch]:
        def read(batch: list[int]) -> bytes:
            return b"".join(read_file(self._files.paths[sample]) for sample in batch)

        def epoch() -> Iterator[int]:
            under_way: deque[tuple[int, Future[bytes]]] = deque()
            for batch in shuffled_batches(ids, self._batch_size, seed):
                under_way.append((len(batch), self._pool.submit(read, batch)))
                if len(under_way) == _PREFETCH * self.workers:
                    yield _finished(under_way)
            while under_way:
                yield _finished(under_way)

        yield epoch

    def processes(self) -> list[int]:
        return []

    def operations(self, records: int) -> int:
        return 2 * records

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _finished(under_way: deque[tuple[int, Future[bytes]]]) -> int:
    count, reading = under_way.popleft()
    reading.result()
    return count


def shuffled_batches(ids: Sequence[int], batch_size: int, seed: int) -> list[list[int]]:
    """The batches of a pass."""
    order = list(ids)
    random.Random(seed).shuffle(order)
    return [order[at : at + batch_size] for at in range(0, len(order), batch_size)]


class ShadeSide:
    """shade, with a daemon of its own, which nothing else uses."""

    def __init__(self, dataset: str, batch_size: int, image_size: int | None, cache: str | None, socket: Path) -> None:
        self.name = "shade"
        self._dataset, self._batch_size, self._image_size, self._cache = dataset, batch_size, image_size, cache
        self._socket, self._opened, self._reads = socket, 0, 0
        # Keeps the daemon between two sets, and takes no part in its cache. It ends with the last
        # of them.
        self._keeper = Loader(
            dataset, 1, train=False, cache=cache, rank=0, world_size=1, daemon=Daemon(job="keeper", socket=socket, linger=0.0)
        )
        self._is_in_place = not any(Path(dataset).glob("*.tar")) if "://" not in dataset else False

    @contextmanager
    def opened(self, ids: Sequence[int], seed: int) -> Iterator[Epoch]:
        self._opened += 1
        loader = Loader(
            self._dataset,
            self._batch_size,
            image_size=self._image_size,
            cache=self._cache,
            seed=seed,
            rank=0,
            world_size=1,
            plan=Plan(indices=sorted(ids)),
            daemon=Daemon(job=f"set-{self._opened}", socket=self._socket, linger=0.0),
        )

        def epoch() -> Iterator[int]:
            before = loader.stats()["total"]["reads"]
            for batch in loader:
                count = len(batch)
                # Its place in the ring is free for the next one.
                del batch
                yield count
            self._reads = loader.stats()["total"]["reads"] - before

        with loader:
            yield epoch

    def processes(self) -> list[int]:
        return [self._keeper.daemon_pid]

    def operations(self, records: int) -> int:
        """Reads as the daemon counts them: one of neighbours is one. Images in place are opened, too."""
        return self._reads * (2 if self._is_in_place else 1)

    def close(self) -> None:
        self._keeper.close()


def data_loaders(files: Files, batch_size: int, workers: Sequence[int]) -> list[DataLoaderSide | PoolSide]:
    """A DataLoader for each of these numbers of workers, or threads where there is no torch."""
    try:
        import_module("torch.utils.data")
        if files.image_size is not None:
            import_module("torchvision.transforms")
    except ImportError:
        if files.image_size is not None:
            raise ShadeError("--image-size needs torch and torchvision: install them, or name another --python") from None
        return [PoolSide(files, batch_size, count) for count in workers]
    return [DataLoaderSide(files, batch_size, count) for count in workers]
