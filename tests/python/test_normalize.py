"""shade_load.Normalize beside torchvision's own transforms, and in a Loader."""

import copy
import pickle
import weakref
from pathlib import Path
from typing import Any

import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, Loader, Normalize, Plan, _native
from shade_load.transforms import (
    CenterCrop,
    Grayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomResizedCrop,
    RandomVerticalFlip,
)
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
    assert found.dtype == torch.float32 and found.is_contiguous(memory_format=memory_format)
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
    bytes_ = images(4, 30, 50)
    for gaps in (bytes_[::2, :, 3:20, ::2], bytes_.movedim(-1, -2), bytes_.flip(0)[:, :, 2:]):
        found = Normalize(MEAN, STD)(gaps)
        assert torch.equal(found, torchvisions(gaps)) and found.is_contiguous()
    assert Normalize(MEAN, STD)(bytes_[:0]).shape == (0, 3, 30, 50)


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
        (MEAN, (0.2, 1e-40, 0.2), "float32", "std: got"),
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
        for memory_format in (torch.contiguous_format, torch.channels_last):
            given = bytes_.contiguous(memory_format=memory_format)
            assert normalize(given.to("meta")).is_contiguous(memory_format=memory_format)
            computed = normalize._computed(given)
            assert computed.is_contiguous(memory_format=memory_format)
            assert torch.equal(computed, normalize(bytes_))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_it_is_handed_to_processes_and_copied(dtype: str) -> None:
    bytes_, normalize = images(3, 5, 7), Normalize(MEAN, STD, dtype)
    for other in (pickle.loads(pickle.dumps(normalize)), copy.deepcopy(normalize)):
        assert torch.equal(other(bytes_), normalize(bytes_)) and repr(other) == repr(normalize)


def test_the_floats_are_where_the_images_are_whatever_the_default_device_is() -> None:
    bytes_ = images(3, 5, 7)
    with torch.device("meta"):
        floats = Normalize(MEAN, STD)(bytes_)
    assert torch.equal(floats, Normalize(MEAN, STD)(bytes_))


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
            self.floats = torch.empty(bytes_.shape)

        def __dlpack__(self) -> object:
            assert self.source.exported() is not None, "the source's memory is gone before it is used"
            return self.floats.__dlpack__()

    source = Temporary()
    target = Target(source)
    _native.fill_floats(source, target, normalize.mean, normalize.std, 2)
    assert torch.equal(target.floats, normalize(bytes_))
    assert source.exported() is None, "and no longer"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("normalize")
    (folder / "images" / "a").mkdir(parents=True)
    for number, image in enumerate(images(10, 24, 24)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / "images" / "a" / f"{number}.png")
    packed.run_pack("create", folder / "images", folder / "data.shade")
    return folder / "data.shade"


LAYOUTS = {False: torch.contiguous_format, True: torch.channels_last}
WHOLE = CenterCrop(24)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("decode", [[WHOLE], [[WHOLE], [WHOLE, RandomInvert(0.0)]]])
def test_floats_have_the_loaders_memory_format(dataset: Path, channels_last: bool, dtype: str, decode: Any) -> None:
    normalize = Normalize(MEAN, STD, dtype)
    options: dict[str, Any] = {"decode": decode, "channels_last": channels_last, "train": False}
    with Loader(dataset, 4, transform=normalize, daemon=Daemon(job="normalize"), **options) as loader:
        batches = [batch.images if isinstance(batch.images, list) else [batch.images] for batch in loader]
    for views in zip(*batches, strict=True):
        assert all(images.is_contiguous(memory_format=LAYOUTS[channels_last]) for images in views)
        assert torch.equal(torch.cat(views), normalize(images(10, 24, 24)))
    assert torch.equal(torch.cat([views[0] for views in batches]), torchvisions(images(10, 24, 24)).to(normalize.dtype))


class LeNet(torch.nn.Module):
    """As in many scripts, `view` flattens what convolutions made."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2))
        self.classifier = torch.nn.Linear(6 * 10 * 10, 3)

    def forward(self, floats: torch.Tensor) -> torch.Tensor:
        features = self.features(floats)
        return self.classifier(features.view(features.size(0), -1))


@pytest.mark.parametrize("transform", [Normalize(MEAN, STD), lambda images: images.float() / 255])
def test_models_with_view_train(dataset: Path, transform: Any) -> None:
    model = LeNet()
    with Loader(dataset, 4, image_size=24, transform=transform, daemon=Daemon(job="lenet")) as loader:
        for floats, labels in loader:
            assert floats.view(len(floats), -1).shape[1] == 3 * 24 * 24
            torch.nn.functional.cross_entropy(model(floats), labels).backward()


KINDS: dict[str, dict[str, Any]] = {
    "image_size": {"image_size": 24},
    "crop": {"decode": [RandomResizedCrop(20), RandomHorizontalFlip()]},
    "operations": {"decode": [WHOLE, RandomInvert(), RandomVerticalFlip()]},
    "grey": {"decode": [WHOLE, Grayscale()]},
    "views": {"decode": [[WHOLE], [RandomResizedCrop(8), Grayscale()], [RandomResizedCrop(20)]]},
    "own sizes": {"decode": "none"},
    "echo": {"image_size": 24, "plan": Plan(sampler="echo", echo=2.0)},
    "group": {"image_size": 24, "plan": Plan(group="strides")},
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_a_batch_lies_as_it_is_told(dataset: Path, kind: str, channels_last: bool) -> None:
    with Loader(dataset, 4, channels_last=channels_last, daemon=Daemon(job="strides"), **KINDS[kind]) as loader:
        for batch in loader:
            images = batch.images if isinstance(batch.images, list) else [batch.images]
            for image in images:
                of_batch = image if image.dim() == 4 else image[None]
                assert of_batch.is_contiguous(memory_format=LAYOUTS[channels_last])
            for name in batch.keys():
                columns = getattr(batch, name)
                if name != "images":
                    columns = columns if isinstance(columns, list) else [columns]
                    assert all(column.is_contiguous() for column in columns), name
