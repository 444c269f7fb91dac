"""Batches on a CUDA device. Only refusals are tested where there is none."""

from pathlib import Path

import pytest
import torch
from shade_load import Daemon, Loader, Normalize, Plan, ShadeError
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
