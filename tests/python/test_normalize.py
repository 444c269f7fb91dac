"""shade_load.Normalize beside torchvision's own transforms, and in a Loader."""

import weakref
from pathlib import Path

import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, Normalize, _native
from shade_load.transforms import CenterCrop
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def images(count: int, height: int, width: int) -> torch.Tensor:
    numbers = torch.Generator().manual_seed(count * height + width)
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8, generator=numbers)


def torchvisions(bytes_: torch.Tensor) -> torch.Tensor:
    return v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])(bytes_)


# Fewer images than threads, one pixel, more pixels than a work unit (1,024), all byte values.
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 40, 77), (5, 32, 32), (7, 1, 1500), (3, 64, 65)])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_floats_are_torchvisions_to_the_last_bit(shape: tuple[int, int, int], memory_format: torch.memory_format) -> None:
    bytes_ = images(*shape).contiguous(memory_format=memory_format)
    found = Normalize(MEAN, STD)(bytes_)
    assert found.dtype == torch.float32 and found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, torchvisions(bytes_))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_small_floats_are_rounded_once(name: str) -> None:
    dtype = getattr(torch, name)
    bytes_ = images(4, 30, 50)
    for given in (name, dtype):
        found = Normalize(MEAN, STD, given)(bytes_)
        assert found.dtype == dtype and torch.equal(found, torchvisions(bytes_).to(dtype))


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_any_number_of_threads_does_the_same(threads: int) -> None:
    bytes_, before = images(5, 33, 44), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(Normalize(MEAN, STD)(bytes_), torchvisions(bytes_))
    finally:
        torch.set_num_threads(before)


def test_tensors_with_gaps_will_do_and_none_is_empty() -> None:
    bytes_ = images(4, 30, 50)[::2, :, 3:20, ::2]
    assert torch.equal(Normalize(MEAN, STD)(bytes_), torchvisions(bytes_))
    assert Normalize(MEAN, STD)(bytes_[:0]).shape == (0, 3, 17, 25)


def test_what_is_no_batch_of_bytes_is_refused_by_name() -> None:
    normalize = Normalize(MEAN, STD)
    for wrong in (images(2, 3, 4).float(), images(2, 3, 4)[0], images(2, 3, 4)[:, :2]):
        with pytest.raises(ValueError, match="images: got torch"):
            normalize(wrong)
    with pytest.raises(TypeError, match="images: got list"):
        normalize([images(2, 3, 4)])
    for mean, std, dtype, text in [
        ((0.5, 0.5), STD, "float32", "mean: got"),
        (MEAN, (0.2, 0.0, 0.2), "float32", "std: got"),
        (MEAN, STD, "float64", "dtype: got 'float64'"),
        (MEAN, STD, torch.int32, "dtype: got torch.int32"),
    ]:
        with pytest.raises(ValueError, match=text):
            Normalize(mean, std, dtype)


def test_on_other_devices_torchs_functions_do_it_there() -> None:
    """The meta device shows shape and device; the same functions on the CPU show the numbers."""
    for name in ("float32", "float16", "bfloat16"):
        normalize, bytes_ = Normalize(MEAN, STD, name), images(4, 30, 50)
        there = normalize(bytes_.to("meta"))
        assert (there.device.type, there.shape, there.dtype) == ("meta", bytes_.shape, normalize.dtype)
        assert there.is_contiguous(memory_format=torch.channels_last)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            computed = normalize._computed(bytes_.contiguous(memory_format=memory_format))
            assert computed.is_contiguous(memory_format=torch.channels_last)
            assert torch.equal(computed, normalize(bytes_))


def test_memory_that_only_a_capsule_keeps_stays_until_the_end() -> None:
    """An exported tensor may have no other owner: it must live until its last byte is used."""
    normalize, bytes_ = Normalize(MEAN, STD), images(3, 8, 8)

    class Temporary:
        def __dlpack__(self) -> object:
            exported = bytes_.numpy().copy()
            self.exported = weakref.ref(exported)
            return exported.__dlpack__()

    class Target:
        def __init__(self, source: Temporary) -> None:
            self.source = source
            self.floats = torch.empty(bytes_.shape, memory_format=torch.channels_last)

        def __dlpack__(self) -> object:
            assert self.source.exported() is not None, "the source's memory is gone before it is used"
            return self.floats.__dlpack__()

    source = Temporary()
    target = Target(source)
    _native.fill_floats(source, target, normalize._tables, 2)
    assert torch.equal(target.floats, normalize(bytes_))
    assert source.exported() is None, "and no longer"


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_loader_delivers_floats(tmp_path: Path, channels_last: bool) -> None:
    (tmp_path / "folder" / "a").mkdir(parents=True)
    for number, image in enumerate(images(10, 24, 24)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "folder" / "a" / f"{number}.png")
    packed.run_pack("create", tmp_path / "folder", tmp_path / "data.shade")
    options = {"decode": CenterCrop(24), "channels_last": channels_last, "train": False, "daemon": Daemon(job="normalize")}
    with Loader(tmp_path / "data.shade", 4, transform=Normalize(MEAN, STD), **options) as loader:
        found = torch.cat([batch.images for batch in loader])
    assert torch.equal(found, torchvisions(images(10, 24, 24)))
