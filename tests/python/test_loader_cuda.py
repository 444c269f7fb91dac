"""Batches on a CUDA device. Where there is none only refusals are tested, and what is kept for one."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from shade_load import Daemon, Loader, Normalize, Plan, ShadeError
from shade_load.device import CudaDevice
from shade_load.transforms import RandomResizedCrop

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_what_is_no_device_here_is_refused_by_name(png_dataset: Path) -> None:
    with pytest.raises(ValueError, match="device: got 'cpu', expected a CUDA device"):
        Loader(png_dataset, 4, image_size=8, device="cpu", daemon=Daemon(job="no-device"))
    beyond = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ShadeError, match=f"device: got '{beyond}', but torch sees"):
        Loader(png_dataset, 4, image_size=8, device=beyond, daemon=Daemon(job="no-device"))
    with pytest.raises(ValueError, match="device: got 'nonsense', expected a CUDA device"):
        Loader(png_dataset, 4, image_size=8, device="nonsense", daemon=Daemon(job="no-device"))


class Event:
    """One that nothing has reached until somebody waits for it."""

    is_reached = False

    def query(self) -> bool:
        return self.is_reached

    def synchronize(self) -> None:
        self.is_reached = True


class FakeCuda:
    """What CudaDevice uses of torch, and of its streams."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.cuda = self
        self.Stream = self.current_stream = lambda device: self
        self.device = lambda device: nullcontext()

    def record_event(self) -> Event:
        self.events.append(Event())
        return self.events[-1]

    def synchronize(self, device: object) -> None:
        for event in self.events:
            event.synchronize()

    def cudart(self) -> Any:
        return SimpleNamespace(cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda *_: 0)


@pytest.mark.parametrize("asks", [False, True])
def test_a_batch_with_columns_on_the_cpu_keeps_its_place_until_the_device_has_done_what_was_begun(
    png_dataset: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """Without a device: what would be copied to it stays where it is."""
    monkeypatch.setattr("shade_load.device.cuda_device", lambda torch, device: device)
    monkeypatch.setattr("shade_load.device.CudaDevice.put", lambda self, tensor, batch: tensor)
    fake = FakeCuda()
    with Loader(png_dataset, 4, image_size=8, daemon=Daemon(job="lent")) as loader:
        assert loader._session is not None
        loader._device = CudaDevice(fake, "cuda:0", *loader._session.payload)  # type: ignore[arg-type]
        for batch in loader:
            of_before = asks and batch.index > 0
            if asks:
                # A copy is begun, and neither column nor batch is kept.
                batch["ids"].clone(), batch["flags"].clone()
            ahead = [event for event in fake.events if not event.is_reached]
            assert len(ahead) == of_before, "it is one batch ahead of the device at most"
            del batch
            assert loader._session.held == asks + of_before
        assert loader._session.held == asks
        fake.synchronize("cuda:0")
        next(iter(loader))
        assert loader._session.held == 0, "nothing is kept of what the device has done"


@gpu
def test_raw_records_stay_on_the_cpu(png_dataset: Path) -> None:
    with pytest.raises(ValueError, match="for raw records"):
        Loader(png_dataset, 4, device="cuda", daemon=Daemon(job="raw-device"))


@gpu
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("decode", [RandomResizedCrop(32), "none"])
def test_a_device_has_what_the_cpu_has(jpeg_dataset: Path, decode: object, channels_last: bool) -> None:
    options = {"decode": decode, "channels_last": channels_last, "seed": 5, "plan": Plan(sampler="uniform")}
    with (
        Loader(jpeg_dataset, 7, daemon=Daemon(job="on-cpu"), **options) as cpu,
        Loader(jpeg_dataset, 7, device="cuda:0", daemon=Daemon(job="on-cuda"), **options) as cuda,
    ):
        for epoch in range(3):
            count = 0
            for here, there in zip(cpu, cuda, strict=True):
                count += len(here)
                assert here.ids.tolist() == there.ids.tolist() and there.ids.device.type == "cpu"
                for name in ("labels", "weights"):
                    assert getattr(there, name).device.type == "cuda"
                    assert torch.equal(getattr(here, name), getattr(there, name).cpu())
                pairs = zip(here.images, there.images, strict=True)
                assert all(torch.equal(image, other.cpu()) for image, other in pairs)
                cuda.report(there, torch.rand(len(there), device="cuda:0"))
            assert count == 90, epoch


@gpu
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats_of_the_daemon_arrive_on_a_device(jpeg_dataset: Path, dtype: str, channels_last: bool) -> None:
    options = {"decode": RandomResizedCrop(32), "channels_last": channels_last, "dtype": dtype}
    with (
        Loader(jpeg_dataset, 7, daemon=Daemon(job="floats-here"), **options) as cpu,
        Loader(jpeg_dataset, 7, device="cuda:0", daemon=Daemon(job="floats-there"), **options) as cuda,
    ):
        for here, there in zip(cpu, cuda, strict=True):
            assert there.images.device.type == "cuda" and there.images.dtype == getattr(torch, dtype)
            assert torch.equal(here.images, there.images.cpu())


@gpu
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_normalize_makes_on_a_device_what_it_makes_on_the_cpu(jpeg_dataset: Path, dtype: str, channels_last: bool) -> None:
    normalize = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), dtype)
    options = {"image_size": 32, "channels_last": channels_last, "train": False, "transform": normalize}
    with (
        Loader(jpeg_dataset, 7, daemon=Daemon(job="floats-cpu"), **options) as cpu,
        Loader(jpeg_dataset, 7, device="cuda:0", daemon=Daemon(job="floats-cuda"), **options) as cuda,
    ):
        for (here, _), (there, labels) in zip(cpu, cuda, strict=True):
            assert there.device == labels.device == torch.device("cuda:0")
            layout = torch.channels_last if channels_last else torch.contiguous_format
            assert all(floats.is_contiguous(memory_format=layout) for floats in (here, there))
            assert torch.equal(here, there.cpu())


@gpu
def test_batches_let_go_of_at_once_are_whole_on_the_device(jpeg_dataset: Path) -> None:
    """The ring is small and only copies are kept, so a block that is released too early shows."""
    options = {"image_size": 96, "seed": 5, "plan": Plan(sampler="uniform")}
    with Loader(jpeg_dataset, 5, daemon=Daemon(job="small-cpu", ring=1), **options) as cpu:
        expected = [batch.images.clone() for _ in range(10) for batch in cpu]
    with Loader(jpeg_dataset, 5, device="cuda", daemon=Daemon(job="small-cuda", ring=1), **options) as cuda:
        # Work on the current stream. Copies must not wait for it, and it must wait for them.
        busy = torch.rand(2048, 2048, device="cuda")
        found = []
        for _ in range(10):
            for batch in cuda:
                busy = busy @ busy / 1024
                found.append(batch.images.float())
        assert cuda._session is not None and cuda._session.held <= 3
    assert len(found) == len(expected)
    assert all(torch.equal(image.float(), other.cpu()) for image, other in zip(expected, found, strict=True))
