"""Batches in shared memory: none is overwritten while a tensor lives, and few are copied."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import packed
import pytest
from shade_load import Batch, Daemon, Loader, Plan

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("memory")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """More than 200 batches of one."""
    root = tmp_path_factory.mktemp("long")
    packed.image_folder(root / "folder", "png", {"ant": 110, "bee": 113})
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture
def loader(dataset: packed.Packed) -> Iterator[Loader]:
    with Loader(
        dataset.path, 4, image_size=packed.SIDE, plan=Plan(sampler="uniform"), daemon=Daemon(ring="16MiB")
    ) as loader:
        yield loader


def held(loader: Loader) -> int:
    return loader._session.held


def mappings() -> list[range]:
    """The address ranges of this process that are mapped from memfds, as the kernel lists them."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as lines:
        spans = [line.split()[0].split("-") for line in lines if "/memfd:" in line]
    return [range(int(start, 16), int(end, 16)) for start, end in spans]


def in_ring(tensor: Any) -> bool:
    return any(tensor.data_ptr() in span for span in mappings())


def test_tensors_lie_in_the_ring(loader: Loader) -> None:
    batch = next(iter(loader))
    for tensor in (batch.images, batch.labels, batch.ids, batch.weights, batch.flags):
        assert in_ring(tensor)
        assert tensor.is_contiguous()


def test_a_batch_is_never_copied(loader: Loader) -> None:
    batch = next(iter(loader))
    again = torch.from_dlpack(batch._native.images(0))
    assert batch.images is batch.images
    assert again.data_ptr() == batch.images.data_ptr()
    batch.images.fill_(7)
    assert bool((again == 7).all())
    assert bytes(batch._native.images(0)) == b"\7" * batch.images.numel()


def test_nothing_is_overwritten_while_a_tensor_lives(dataset: packed.Packed, loader: Loader) -> None:
    # Keeps as many batches as may stay in the ring: half of its release marks.
    kept = []
    for _ in range(2):
        for batch in loader:
            kept.append((batch.ids.tolist(), batch.images))
            del batch
    assert len(kept) == 32 and held(loader) == 32
    assert all(in_ring(images) for _, images in kept)
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
    with Loader(
        dataset.path, 4, image_size=packed.SIDE, plan=Plan(sampler="uniform"), daemon=Daemon(ring=1, job="small")
    ) as loader:
        for _ in range(5):
            seen = sorted(sample for batch in loader for sample in batch.ids.tolist())
            assert seen == list(range(len(dataset)))
        assert held(loader) == 0


def test_a_batch_outlives_its_loader(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 4, image_size=packed.SIDE, daemon=Daemon(job="outlived")) as loader:
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


def resident_bytes() -> int:
    """Resident set size of this process."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) << 10


def test_a_loop_that_keeps_nothing_needs_the_ring_and_no_more(dataset: packed.Packed) -> None:
    # 16 batches of 768 KiB an epoch go through it.
    ring, slack = 4 << 20, 8 << 20
    with Loader(
        dataset.path, 4, image_size=256, plan=Plan(sampler="uniform"), daemon=Daemon(ring=ring, job="resident")
    ) as loader:
        begun = resident_bytes()
        for _ in range(10):
            for batch in loader:
                batch.images.fill_(1)
                assert in_ring(batch.images)
        assert resident_bytes() - begun < ring + slack


# A ring with room for eight batches of one of these images, each in pages of its own.
EIGHT = "32KiB"


class TestKept:
    """Whatever is kept, and for how long: every batch comes, and is right."""

    @staticmethod
    @contextmanager
    def kept_in(ring: int | str, long: packed.Packed, **options: Any) -> Iterator[tuple[Loader, list[str]]]:
        """A Loader and its warnings."""
        job = f"ring{ring}"
        said: list[str] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plan, daemon = Plan(sampler="uniform"), Daemon(ring=ring, job=job)
            with Loader(long.path, 1, plan=plan, daemon=daemon, **options) as loader:
                yield loader, said
                said += [str(warning.message) for warning in caught if warning.category is RuntimeWarning]

    @staticmethod
    def content(batch: Batch) -> tuple[Any, ...]:
        columns = (batch.ids, batch.labels, batch.weights, batch.flags)
        rows = batch.records if batch._native.raw else batch.images
        return (*(column.tolist() for column in columns), [row.numpy().tobytes() for row in rows])

    @pytest.mark.parametrize("options", [{"image_size": packed.SIDE}, {}], ids=["decoded", "raw"])
    @pytest.mark.parametrize("ring", [1, EIGHT])
    @pytest.mark.parametrize(
        "keeps",
        [
            pytest.param(lambda number: True, id="all"),
            pytest.param(lambda number: number == 0, id="first"),
            pytest.param(lambda number: number % 10 == 0, id="tenth"),
            pytest.param(lambda number: number % 97 > 5, id="most"),
        ],
    )
    def test_all_of_three_epochs_comes_as_it_does_to_who_keeps_nothing(
        self, long: packed.Packed, ring: int | str, options: dict[str, Any], keeps: Callable[[int], bool]
    ) -> None:
        with self.kept_in(ring, long, **options) as (loader, said):
            expected = [self.content(batch) for _ in range(3) for batch in loader]
            assert held(loader) == 0
        assert len(expected) == 3 * len(long) and len({row[-1][0] for row in expected}) == len(long)
        assert said == []
        kept = []
        with self.kept_in(ring, long, **options) as (loader, said):
            for number, batch in enumerate(batch for _ in range(3) for batch in loader):
                if keeps(number):
                    kept.append((number, batch))
                else:
                    assert self.content(batch) == expected[number]
                del batch
            # After all epochs, so that an overwritten batch would show.
            assert all(self.content(batch) == expected[number] for number, batch in kept)
            assert 0 < held(loader) <= min(len(kept), 4 if ring == EIGHT else 2)
        assert number + 1 == len(expected)
        # One kept batch and the loop's last one fill half of the smallest ring.
        assert len(said) == (0 if len(kept) == 1 and ring == EIGHT else 1)
        assert all(self.content(batch) == expected[number] for number, batch in kept), "the Loader is closed"

    def test_a_list_of_all_batches_and_a_transform(self, long: packed.Packed) -> None:
        def halved(images: Any) -> Any:
            return images.float() / 2

        with self.kept_in(1, long, image_size=packed.SIDE, transform=halved) as (loader, said):
            batches = list(loader)
        assert len(said) == 1
        assert len(batches) == len(long)
        for batch in batches:
            [sample] = batch.ids.tolist()
            whole = torch.frombuffer(bytearray(long.pixels(sample)), dtype=torch.uint8)
            assert torch.equal(batch.images.flatten(), whole / 2)

    def test_the_warning_says_what_happens_and_what_to_do(self, long: packed.Packed) -> None:
        with self.kept_in(1, long, image_size=packed.SIDE) as (loader, said):
            list(islice(loader, 10))
        [text] = said
        assert text.startswith("2 batches are held") and "clone()" in text and "Daemon(ring=...), now 0.0 MiB" in text
        with self.kept_in("1MiB", long, image_size=packed.SIDE) as (loader, said):
            list(islice(loader, 100))
        [text] = said
        assert text.startswith("32 batches are held") and "ring=" not in text, "no ring is large enough"

    def test_where_warnings_are_errors_no_batch_is_lost(self, long: packed.Packed) -> None:
        with (
            warnings.catch_warnings(),
            Loader(
                long.path,
                1,
                image_size=packed.SIDE,
                plan=Plan(sampler="uniform"),
                daemon=Daemon(ring=1, job="warnings"),
            ) as loader,
        ):
            warnings.simplefilter("error", RuntimeWarning)
            batches, kept, said = iter(loader), [], []
            while len(kept) < len(long):
                try:
                    kept.append(next(batches))
                except RuntimeWarning as warning:
                    said.append(str(warning))
                except StopIteration:
                    break
        assert sorted(batch.ids.item() for batch in kept) == list(range(len(long)))
        [text] = said
        assert "batches are held" in text

    def test_views_come_back_when_what_was_kept_is_gone(self, long: packed.Packed) -> None:
        with self.kept_in(EIGHT, long, image_size=packed.SIDE) as (loader, said):
            batches = iter(loader)
            kept = list(islice(batches, 50))
            assert [in_ring(batch.images) for batch in kept] == [True] * 4 + [False] * 46
            # A copy that goes frees no place in the ring, and a view does.
            del kept[20:]
            assert not in_ring(next(batches).images)
            del kept[1]
            assert held(loader) == 3
            assert in_ring(next(batches).images)
            kept.clear()
            assert held(loader) == 0
            assert all(in_ring(batch.images) for batch in batches)
            again = list(islice(loader, 50))
            assert [in_ring(batch.images) for batch in again] == [True] * 4 + [False] * 46
        assert len(said) == 1

    def test_a_copy_is_the_trainers_to_write(self, long: packed.Packed) -> None:
        with self.kept_in(1, long, image_size=packed.SIDE) as (loader, _):
            kept = list(islice(loader, 20))
        last = kept.pop()
        row = last.images[0]
        again = torch.from_dlpack(last._native.images(0))
        assert not in_ring(row) and again.data_ptr() == last.images.data_ptr()
        assert all(column.data_ptr() % 64 == 0 for column in (last.images, last.ids, last.flags))
        row.fill_(7)
        del last, again, kept
        gc.collect()
        assert bool((row == 7).all()), "a slice of a tensor lost its memory"


class TestDlpack:
    """Corner cases of the protocol, seen from a consumer."""

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
        array = numpy.from_dlpack(batch._native.images(0))
        assert array.flags.writeable and array.shape == tuple(batch.images.shape)
        array[0, 0, 0, 0] = 255 - array[0, 0, 0, 0]
        assert batch.images[0, 0, 0, 0] == array[0, 0, 0, 0]
