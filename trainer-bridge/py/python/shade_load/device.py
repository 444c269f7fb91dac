"""Batches on a CUDA device, copied from the ring on a separate stream while the model computes."""

from __future__ import annotations

from collections import deque
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._native import Batch, ShadeError
from .options import shown

if TYPE_CHECKING:
    import torch as torch_
    from torch import Tensor
    from torch.cuda import Event

# cudaHostRegisterDefault.
_REGISTER_FLAGS = 0


class CudaDevice:
    """A device to which tensors in the ring are copied.

    The ring's memory is registered with CUDA, which pins it: only copies from pinned memory
    are asynchronous. A batch keeps its place in the ring until its copies are done, even if it is
    dropped before. So does one whose columns on the CPU were asked for: the caller may copy them.

    Args:
        torch: The module.
        device: "cuda", "cuda:1" or a torch.device.
        address, length: The ring's memory.
    """

    def __init__(self, torch: ModuleType, device: str | torch_.device, address: int, length: int) -> None:
        self._torch = torch
        self._device = cuda_device(torch, device)
        self._stream = torch.cuda.Stream(self._device)
        # Copies that may not be done, in the stream's order, with what they read.
        self._under_way: deque[tuple[Event, Batch | Tensor]] = deque()
        # Batches of which the caller has columns on the CPU, since the last was given. Those
        # before, with the end of what the current stream had to do by then.
        self._lent: list[Batch] = []
        self._kept: tuple[Event, list[Batch]] | None = None
        self._address, self._successors = address, 0
        self._register(address, length)

    def is_of_another_ring(self, successors: int) -> bool:
        """Whether the ring that is registered is that of a daemon before."""
        return successors != self._successors

    def move(self, successors: int, address: int, length: int) -> None:
        """Registers the ring of a daemon's successor in the place of the one before."""
        self._finish()
        self._unregister()
        self._address, self._successors = address, successors
        self._register(address, length)

    def _register(self, address: int, length: int) -> None:
        torch = self._torch
        with torch.cuda.device(self._device):
            self._check(torch.cuda.cudart().cudaHostRegister(address, length, _REGISTER_FLAGS), "registering the ring")

    def put(self, tensor: Tensor, batch: Batch | Tensor) -> Tensor:
        """A copy of `tensor`, which is in the memory of `batch` or its own, for the current stream."""
        current = self._torch.cuda.current_stream(self._device)
        with self._torch.cuda.stream(self._stream):
            copy = tensor.to(self._device, non_blocking=True)
            done = self._stream.record_event()
        self._under_way.append((done, batch))
        current.wait_event(done)
        # The memory belongs to the copying stream: without this its allocator could reuse it while
        # the current stream still reads it.
        copy.record_stream(current)
        return copy

    def lend(self, batch: Batch) -> None:
        """The caller gets a column in this batch's memory, and may begin a copy before the next batch."""
        if not self._lent or self._lent[-1] is not batch:
            self._lent.append(batch)

    def let_go(self) -> None:
        """Drops batches whose copies are done, before the next batch is taken.

        It waits only if columns were lent: then the caller is one batch ahead of the device at
        most, so that no more is kept than a loop keeps that still has its last batch.
        """
        while self._under_way and self._under_way[0][0].query():
            self._under_way.popleft()
        if self._kept is not None and (self._lent or self._kept[0].query()):
            self._kept[0].synchronize()
            self._kept = None
        if self._lent:
            done = self._torch.cuda.current_stream(self._device).record_event()
            self._kept, self._lent = (done, self._lent), []

    def close(self) -> None:
        """Waits for all copies, then unregisters the ring. Batches that you keep stay valid."""
        self._finish()
        self._unregister()

    def _finish(self) -> None:
        """Waits for what the device has to do: for copies of the caller's own, too."""
        self._torch.cuda.synchronize(self._device)
        self._under_way.clear()
        self._lent, self._kept = [], None

    def _unregister(self) -> None:
        with self._torch.cuda.device(self._device):
            self._check(self._torch.cuda.cudart().cudaHostUnregister(self._address), "releasing the ring")

    def _check(self, code: Any, what: str) -> None:
        if int(code) != 0:
            raise ShadeError(f"{self._device}: {what} failed: CUDA error {int(code)}")


def cuda_device(torch: ModuleType | None, device: str | torch_.device) -> torch_.device:
    """The torch.device of that name, if it is a CUDA device here."""
    if torch is None:
        raise ShadeError(f"device: got {device!r}, but torch is not installed")
    try:
        found: torch_.device | None = torch.device(device)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        found = None
    if found is None or found.type != "cuda":
        raise ValueError(f"device: got {shown(device)}, expected a CUDA device such as 'cuda:0', or nothing for the CPU")
    if not torch.cuda.is_available() or (found.index or 0) >= torch.cuda.device_count():
        raise ShadeError(f"device: got {device!r}, but torch sees {torch.cuda.device_count()} CUDA devices")
    # Without a number it would be another one in a thread with another current device.
    return found if found.index is not None else torch.device("cuda", torch.cuda.current_device())


def check_device(torch: ModuleType | None, device: Any, has_images: bool) -> None:
    """Refuses what is no CUDA device here, or would get no images."""
    cuda_device(torch, device)
    if not has_images:
        raise ValueError(f"device: got {device!r} for raw records; give image_size or decode as well")
