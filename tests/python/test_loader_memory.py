"""Batches live in shared memory: no copy is made, and nothing is overwritten while a tensor is alive."""

import gc
from collections.abc import Iterator

import packed
import pytest
from shade_load import Batch, Loader

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("memory")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture
def loader(dataset: packed.Packed) -> Iterator[Loader]:
    with Loader(dataset.path, 4, image_size=packed.SIDE, sampler="uniform", ring="16MiB") as loader:
        yield loader


def held(loader: Loader) -> int:
    return loader._session.held


def mappings() -> list[range]:
    """The address ranges of this process that are mapped from memfds, as the kernel lists them."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as lines:
        spans = [line.split()[0].split("-") for line in lines if "/memfd:" in line]
    return [range(int(start, 16), int(end, 16)) for start, end in spans]


def test_tensors_lie_in_the_ring(loader: Loader) -> None:
    batch = next(iter(loader))
    spans = mappings()
    for tensor in (batch.images, batch.labels, batch.ids, batch.weights, batch.flags):
        assert any(tensor.data_ptr() in span for span in spans)
        assert tensor.is_contiguous()


def test_a_batch_is_never_copied(loader: Loader) -> None:
    batch = next(iter(loader))
    again = torch.from_dlpack(batch._native.images())
    assert batch.images is batch.images
    assert again.data_ptr() == batch.images.data_ptr()
    batch.images.fill_(7)
    assert bool((again == 7).all())
    assert bytes(batch._native.images()) == b"\7" * batch.images.numel()


def test_nothing_is_overwritten_while_a_tensor_lives(dataset: packed.Packed, loader: Loader) -> None:
    # Every batch of three epochs is kept, by different parts of it, until as many are held as the ring has room for.
    kept = []
    for _ in range(3):
        for batch in loader:
            kept.append((batch.ids.tolist(), batch.images))
            del batch
            if len(kept) == 40:
                break
    assert len(kept) == 40 and held(loader) == 40
    for ids, images in kept:
        for sample, image in zip(ids, images, strict=True):
            assert image.numpy().tobytes() == dataset.pixels(sample)


def test_a_place_is_free_when_the_last_view_of_it_dies(loader: Loader) -> None:
    batches = iter(loader)
    batch = next(batches)
    images, row = batch.images, batch.images[0]
    assert held(loader) == 1
    del batch, images
    assert held(loader) == 1, "a slice of a tensor lost its memory"
    del row
    assert held(loader) == 0
    batch = next(batches)
    del batch
    assert held(loader) == 0, "a batch whose tensors were never made keeps its place"


def test_the_ring_goes_round_when_nothing_is_kept(dataset: packed.Packed) -> None:
    # The smallest ring has room for two or three batches; five epochs go through it.
    with Loader(dataset.path, 4, image_size=packed.SIDE, sampler="uniform", ring=1, job="small") as loader:
        for _ in range(5):
            seen = sorted(sample for batch in loader for sample in batch.ids.tolist())
            assert seen == list(range(len(dataset)))
        assert held(loader) == 0


def test_a_batch_outlives_its_loader(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 4, image_size=packed.SIDE, job="outlived") as loader:
        batch = next(iter(loader))
    del loader
    gc.collect()
    for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
        assert image.numpy().tobytes() == dataset.pixels(sample)


def test_batches_need_no_garbage_collection(loader: Loader) -> None:
    gc.disable()
    try:
        for batch in loader:
            assert len(batch.images) == len(batch.padding) == len(batch)
            loader.report(batch, torch.zeros(len(batch)))
            assert held(loader) <= 2
        del batch
        assert held(loader) == 0
    finally:
        gc.enable()


class TestDlpack:
    """The protocol's corners, seen from a consumer."""

    @pytest.fixture
    def batch(self, loader: Loader) -> Batch:
        return next(iter(loader))

    def test_old_and_new_consumers_get_their_form(self, batch: Batch) -> None:
        view = batch._native.ids()
        assert view.__dlpack_device__() == (1, 0)
        assert '"dltensor"' in repr(view.__dlpack__())
        assert '"dltensor"' in repr(view.__dlpack__(max_version=(0, 8)))
        assert '"dltensor_versioned"' in repr(view.__dlpack__(max_version=(1, 0)))
        assert '"dltensor_versioned"' in repr(view.__dlpack__(max_version=(2, 0)))

    @pytest.mark.parametrize("max_version", [None, (1, 0)])
    def test_a_capsule_is_taken_once(self, batch: Batch, max_version: tuple[int, int] | None) -> None:
        capsule = batch._native.ids().__dlpack__(max_version=max_version)
        tensor = torch.utils.dlpack.from_dlpack(capsule)
        assert tensor.tolist() == batch.ids.tolist()
        assert '"used_dltensor' in repr(capsule)
        with pytest.raises(RuntimeError):
            torch.utils.dlpack.from_dlpack(capsule)

    @pytest.mark.parametrize("max_version", [None, (1, 0)])
    @pytest.mark.parametrize("taken", [False, True])
    def test_a_capsule_holds_the_batch_taken_or_not(
        self, loader: Loader, max_version: tuple[int, int] | None, taken: bool
    ) -> None:
        capsule = next(iter(loader))._native.ids().__dlpack__(max_version=max_version)
        assert held(loader) == 1
        if taken:
            tensor = torch.utils.dlpack.from_dlpack(capsule)
            del capsule
            assert held(loader) == 1 and len(tensor) == 4
            del tensor
        else:
            del capsule
        assert held(loader) == 0

    def test_what_shared_memory_cannot_do_is_refused(self, batch: Batch) -> None:
        view = batch._native.ids()
        view.__dlpack__(dl_device=(1, 0), copy=False)
        for refused in ({"copy": True}, {"dl_device": (2, 0)}, {"stream": 1}):
            with pytest.raises(BufferError):
                view.__dlpack__(**refused)

    def test_numpy_takes_it_writable(self, batch: Batch) -> None:
        numpy = pytest.importorskip("numpy")
        array = numpy.from_dlpack(batch._native.images())
        assert array.flags.writeable and array.shape == tuple(batch.images.shape)
        array[0, 0, 0, 0] = 255 - array[0, 0, 0, 0]
        assert batch.images[0, 0, 0, 0] == array[0, 0, 0, 0]
