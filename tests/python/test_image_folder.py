"""shade's ImageFolder over a dataset equals torchvision's over the source, item by item."""

import copy
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import shade_load
import torch
from PIL import Image
from shade_load import RecordError, ShadeError
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, WeightedRandomSampler
from torchvision import datasets
from torchvision.transforms import v2

BATCH = 16
TENSOR = v2.Compose([v2.Resize((24, 24)), v2.PILToTensor()])


@pytest.fixture(params=["png", "jpeg"])
def pair(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """An ImageFolder of images of many sizes and modes, and the dataset packed from it."""
    return request.getfixturevalue(f"{request.param}_folder"), request.getfixturevalue(f"{request.param}_dataset")


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    """61 images, which tests copy before they damage them."""
    root = tmp_path_factory.mktemp("noise")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def same(ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> bool:
    (image, target), (expected, expected_target) = ours, theirs
    return (image.mode, image.size, image.tobytes(), target) == (
        expected.mode,
        expected.size,
        expected.tobytes(),
        expected_target,
    )


def pixels(item: tuple[Any, Any]) -> bytes:
    return item[0].tobytes()


class TestWhatItHolds:
    """Attributes and items beside torchvision's."""

    def test_every_item_is_torchvisions(self, pair: tuple[Path, Path]) -> None:
        folder, dataset = pair
        judge, ours = datasets.ImageFolder(folder), shade_load.ImageFolder(dataset)
        assert isinstance(ours, Dataset)
        assert len(ours) == len(judge) == 90
        assert all(same(ours[sample], judge[sample]) for sample in range(len(judge)))
        assert all(map(same, ours, judge)), "and so by iterating"
        batch = [89, 0, 7, 7, -1, 30]
        assert all(map(same, ours.__getitems__(batch), (judge[sample] for sample in batch)))
        assert ours.__getitems__([]) == []

    def test_attributes_are_torchvisions(self, pair: tuple[Path, Path]) -> None:
        folder, dataset = pair
        judge, ours = datasets.ImageFolder(folder), shade_load.ImageFolder(dataset)
        assert ours.classes == judge.classes
        assert ours.class_to_idx == judge.class_to_idx
        assert type(ours.targets) is list
        assert ours.targets == judge.targets
        assert ours.targets is ours.targets, "made once"
        assert np.array_equal(np.array(ours.targets), np.array(judge.targets))
        relative = [(str(Path(path).relative_to(folder)), label) for path, label in judge.samples]
        assert ours.samples == relative
        assert ours.imgs == relative
        assert (ours.transform, ours.target_transform, ours.root) == (None, None, str(dataset))

    def test_indices_are_taken_as_a_list_takes_them(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path)
        for index in (60, -1, np.int64(60), torch.tensor(60)):
            assert same(ours[index], ours[60])
        assert same(ours[-61], ours[0])
        for index in (61, -62, 1 << 40):
            with pytest.raises(IndexError, match=f"{index} of a dataset of 61"):
                ours[index]
            with pytest.raises(IndexError):
                ours.__getitems__([0, index])
        for strange in (1.0, "1", None, slice(3)):
            with pytest.raises(TypeError):
                ours[strange]

    def test_samples_are_a_list_to_the_eye(self, noise: packed.Packed) -> None:
        samples = shade_load.ImageFolder(noise.path).samples
        listed = list(samples)
        assert listed[0] == ("ant/000.png", 0)
        assert (len(samples), samples[3], samples[-1]) == (61, listed[3], listed[-1])
        assert type(samples[3]) is tuple
        for part in (slice(None), slice(5, 2), slice(-3, None), slice(None, None, -7), slice(50, 500)):
            assert samples[part] == listed[part]
        assert samples == listed
        assert listed == samples
        assert samples == shade_load.ImageFolder(noise.path).samples
        for other in (listed[:-1], [*listed[:-1], ("cat/027.png", 1)], [], tuple(listed), None):
            assert samples != other
        assert listed[9] in samples
        assert ("ant/000.png", 1) not in samples
        assert (samples.index(listed[9]), samples.count(listed[9])) == (9, 1)
        assert [label for _, label in reversed(samples)] == noise.labels[::-1]
        assert repr(samples) == repr(listed)
        with pytest.raises(IndexError):
            samples[61]
        with pytest.raises(TypeError, match="unhashable"):
            hash(samples)

    def test_assigning_samples_is_refused(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path)
        for name in ("samples", "imgs", "targets"):
            with pytest.raises(AttributeError, match=name):
                setattr(ours, name, [])

    @pytest.mark.parametrize("transforms", [{}, {"transform": TENSOR}, {"transform": TENSOR, "target_transform": abs}])
    def test_it_describes_itself_as_torchvision_does(self, pair: tuple[Path, Path], transforms: dict[str, Any]) -> None:
        folder, dataset = pair
        theirs = repr(datasets.ImageFolder(folder, **transforms))
        assert repr(shade_load.ImageFolder(dataset, **transforms)) == theirs.replace(str(folder), str(dataset))

    def test_transforms_are_applied_with_the_same_random_numbers(self, pair: tuple[Path, Path]) -> None:
        folder, dataset = pair
        transform = v2.Compose([v2.RandomCrop(8, pad_if_needed=True), v2.RandomHorizontalFlip(), v2.PILToTensor()])
        drawn = []
        for kind, root in ((datasets.ImageFolder, folder), (shade_load.ImageFolder, dataset)):
            torch.manual_seed(5)
            items = kind(root, transform, lambda target: -target)
            drawn.append(list(DataLoader(items, BATCH, shuffle=True)))
        for (images, targets), (ours, our_targets) in zip(*drawn, strict=True):
            assert torch.equal(images, ours)
            assert torch.equal(targets, our_targets)

    def test_a_transform_set_later_counts(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path)
        ours.transform, ours.target_transform = TENSOR, str
        image, target = ours[20]
        assert (type(image), target) == (torch.Tensor, "1")

    def test_a_loader_of_ones_own(self, noise: packed.Packed) -> None:
        def grey(file: Any) -> Image.Image:
            return Image.open(file).convert("L")

        ours = shade_load.ImageFolder(noise.path, loader=grey)
        judge = datasets.ImageFolder(noise.folder, loader=grey)
        assert all(map(same, ours, judge))

    @pytest.mark.parametrize("io", ["buffered", "direct"])
    def test_through_the_page_cache_and_past_it(self, noise: packed.Packed, io: Any) -> None:
        ours = shade_load.ImageFolder(noise.path, io=io)
        assert all(map(same, ours.__getitems__(range(61)), datasets.ImageFolder(noise.folder)))

    def test_a_folder_that_is_no_dataset(self, noise: packed.Packed, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileNotFoundError, match="shade-pack create"):
            shade_load.ImageFolder(tmp_path / "empty")
        with pytest.raises(ValueError, match="io: got 'fast'"):
            shade_load.ImageFolder(noise.path, io="fast")  # type: ignore[arg-type]
        shutil.copytree(noise.path, tmp_path / "bent")
        index = tmp_path / "bent" / "dataset.shade"
        index.write_bytes(index.read_bytes()[:-1])
        with pytest.raises(ShadeError, match=r"dataset\.shade: "):
            shade_load.ImageFolder(tmp_path / "bent")


class TestHowItIsPacked:
    """Items are equal whatever the packer's options, unless they change the images."""

    # Few images make no dictionary.
    @pytest.mark.parametrize(
        ("images", "how", "codec"), [(3, "none", ""), (3, "zstd", "zstd"), (150, "auto", "dictionary")]
    )
    def test_compressed_records_are_the_same_images(self, tmp_path: Path, images: int, how: str, codec: str) -> None:
        folder = tmp_path / "folder"
        for name in ("one", "two"):
            (folder / name).mkdir(parents=True)
            for number in range(images):
                source = Image.frombytes("RGB", (2, 1), bytes([number, 80, 160, 20, number, 99]))
                source.resize((14, 10)).save(folder / name / f"{number:03}.ppm")
        dataset = packed.pack(folder, tmp_path / "data.shade", "--compress", how)
        about = packed.run_pack("info", dataset.path)
        compressed, dictionary = f"{2 * images} compressed" in about, "\ndictionary " in about
        assert (compressed, dictionary) == (codec != "", codec == "dictionary"), about
        ours, judge = shade_load.ImageFolder(dataset.path), datasets.ImageFolder(folder)
        assert len(judge) == 2 * images
        assert all(map(same, ours.__getitems__(range(len(judge))), judge))

    def test_images_packed_smaller_are_smaller(self, noise: packed.Packed, tmp_path: Path) -> None:
        small = packed.pack(noise.folder, tmp_path / "small.shade", "--format", "raw", "--resize-short", "8")
        images, targets = zip(*shade_load.ImageFolder(small.path), strict=True)
        assert {image.size for image in images} == {(8, 8)}
        assert list(targets) == noise.labels
        # Exactly the bytes that webdataset and tar give.
        judge = v2.Resize(8)(datasets.ImageFolder(noise.folder)[4][0])
        difference = np.abs(np.asarray(images[4], int) - np.asarray(judge, int)).max()
        assert difference <= 1

    def test_datasets_of_other_sources_keep_their_paths_and_labels(self, noise: packed.Packed, tmp_path: Path) -> None:
        rows = [f"{noise.files[number]},{name}" for number, name in ((7, "late"), (30, "early"), (3, "late"))]
        (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows]))
        packed.run_pack("create", tmp_path / "list.csv", tmp_path / "data.shade")
        ours = shade_load.ImageFolder(tmp_path / "data.shade")
        assert ours.classes == ["early", "late"]
        assert ours.targets == [1, 0, 1]
        listed = packed.run_pack("ls", tmp_path / "data.shade")
        judge = datasets.ImageFolder(noise.folder)
        for item, original, (path, _) in zip(ours, (7, 30, 3), ours.samples, strict=True):
            assert pixels(item) == pixels(judge[original])
            assert noise.files[original].name in path
            assert path in listed


class TestDataLoader:
    """A stock DataLoader and what goes with it."""

    @pytest.mark.parametrize(("workers", "start"), [(0, None), (2, "fork"), (2, "spawn"), (2, "forkserver")])
    def test_batches_are_those_of_torchvision(self, pair: tuple[Path, Path], workers: int, start: str | None) -> None:
        folder, dataset = pair
        judge, ours = datasets.ImageFolder(folder, TENSOR), shade_load.ImageFolder(dataset, TENSOR)
        order = torch.randperm(len(judge), generator=torch.Generator().manual_seed(1)).tolist()
        expected = list(DataLoader(judge, BATCH, sampler=order))
        loader = DataLoader(
            ours,
            BATCH,
            sampler=order,
            num_workers=workers,
            multiprocessing_context=start,
            persistent_workers=workers > 0,
        )
        # Twice, for persistent workers.
        for _ in range(2):
            for (images, targets), (our_images, our_targets) in zip(expected, loader, strict=True):
                assert torch.equal(images, our_images)
                assert torch.equal(targets, our_targets)

    def test_samples_read_before_the_fork_are_read_after_it(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path, TENSOR)
        before = [ours[sample][0] for sample in range(61)]
        loader = DataLoader(ours, BATCH, num_workers=2, multiprocessing_context="fork")
        for _ in range(2):
            assert torch.equal(torch.cat([images for images, _ in loader]), torch.stack(before))
        assert torch.equal(ours[0][0], before[0]), "and the parent goes on"

    def test_samplers_and_subsets(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path, TENSOR)
        judge = datasets.ImageFolder(noise.folder, TENSOR)
        part = [60, 3, 3, 17]
        [(images, targets)] = DataLoader(Subset(ours, part), BATCH, num_workers=2)
        assert torch.equal(images, torch.stack([judge[sample][0] for sample in part]))
        assert targets.tolist() == [judge.targets[sample] for sample in part]

        weights = np.array([0.0, 1.0, 3.0])[np.array(ours.targets)]
        drawn = WeightedRandomSampler(weights.tolist(), 300, generator=torch.Generator().manual_seed(2))
        counts = np.bincount(np.concatenate([labels.numpy() for _, labels in DataLoader(ours, BATCH, sampler=drawn)]))
        assert counts[0] == 0
        assert counts.sum() == 300

        seen = []
        for rank in range(2):
            ranks = DistributedSampler(ours, num_replicas=2, rank=rank, shuffle=True, seed=4)
            ids = list(ranks)
            loader = DataLoader(ours, BATCH, sampler=ranks)
            assert torch.equal(torch.cat([images for images, _ in loader]), torch.stack([judge[i][0] for i in ids]))
            seen += ids
        assert set(seen) == set(range(61))

    def test_a_subclass_is_asked_for_each_item(self, noise: packed.Packed) -> None:
        ours = WithIds(noise.path, TENSOR)
        for _, targets, ids in DataLoader(ours, BATCH, shuffle=True, num_workers=2):
            assert targets.tolist() == [noise.labels[sample] for sample in ids.tolist()]

    def test_children_forked_while_threads_read_are_not_stuck(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path)
        expected = [pixels(ours[sample]) for sample in range(61)]
        stop = threading.Event()

        def read() -> None:
            while not stop.is_set():
                ours.__getitems__(range(61))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(25):
                child = os.fork()
                if child == 0:
                    # Ends a child that hangs.
                    signal.alarm(60)
                    right = [pixels(item) for item in ours.__getitems__(range(61))] == expected
                    os._exit(0 if right else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class WithIds(shade_load.ImageFolder):
    """A subclass as many trainings have it: items with their index."""

    def __getitem__(self, index: Any) -> Any:
        return (*super().__getitem__(index), index)


class TestPickling:
    """Pickled, it opens the dataset in another process, where it must be the same one."""

    def test_a_copy_is_the_same(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path, TENSOR, str)
        ours.remark = "set by a user"
        assert ours.targets == noise.labels
        for other in (pickle.loads(pickle.dumps(ours)), copy.copy(ours), copy.deepcopy(ours)):
            assert (repr(other), other.remark) == (repr(ours), "set by a user")
            assert (other.samples, other.targets, other.classes) == (ours.samples, ours.targets, ours.classes)
            assert all(torch.equal(a, b) and s == t for (a, s), (b, t) in zip(other, ours, strict=True))

    def test_copies_have_transforms_of_their_own(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path, TENSOR)
        other = copy.copy(ours)
        other.transform = None
        assert type(ours[7][0]) is torch.Tensor
        assert same(other[7], datasets.ImageFolder(noise.folder)[7])

    def test_it_is_small_however_large_the_dataset(self, noise: packed.Packed) -> None:
        ours = shade_load.ImageFolder(noise.path)
        assert ours.targets
        assert b"ant/0" not in pickle.dumps(ours)

    def test_samples_arrive_as_a_list(self, noise: packed.Packed) -> None:
        samples = shade_load.ImageFolder(noise.path).samples
        arrived = pickle.loads(pickle.dumps(samples))
        assert type(arrived) is list
        assert arrived == samples

    def test_a_relative_path_is_opened_from_anywhere(
        self, noise: packed.Packed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(noise.path.parent)
        ours = shade_load.ImageFolder(noise.path.name)
        assert ours.root == noise.path.name
        sent = pickle.dumps(ours)
        monkeypatch.chdir(tmp_path)
        assert same(pickle.loads(sent)[5], ours[5])

    def test_a_dataset_that_was_replaced_is_refused(self, noise: packed.Packed, tmp_path: Path) -> None:
        copied = noise.copy_to(tmp_path / "data.shade")
        ours = shade_load.ImageFolder(copied.path)
        arrived = pickle.loads(pickle.dumps(ours))
        replace(copied.path, tmp_path)
        with pytest.raises(ShadeError, match="was replaced meanwhile"):
            len(arrived)
        # No shard was opened before this. The bytes there are no record of this dataset.
        with pytest.raises(ShadeError, match="was replaced meanwhile"):
            ours[0]

    @pytest.mark.parametrize("start", ["fork", "spawn"])
    def test_a_data_loader_says_that_it_was_replaced(self, noise: packed.Packed, tmp_path: Path, start: str) -> None:
        copied = noise.copy_to(tmp_path / "data.shade")
        loader = DataLoader(
            shade_load.ImageFolder(copied.path, TENSOR), BATCH, num_workers=1, multiprocessing_context=start
        )
        replace(copied.path, tmp_path)
        with pytest.raises(ShadeError, match="was replaced meanwhile"):
            list(loader)

    def test_what_was_open_outlives_an_append(self, noise: packed.Packed, tmp_path: Path) -> None:
        folder = shutil.copytree(noise.folder, tmp_path / "folder")
        copied = noise.copy_to(tmp_path / "data.shade")
        ours = shade_load.ImageFolder(copied.path)
        shutil.copy(noise.files[-1], folder / "cat" / "new.png")
        packed.run_pack("append", folder, copied.path)
        assert all(map(same, ours, datasets.ImageFolder(noise.folder)))
        # As the workers that a DataLoader spawns for the next epoch.
        arrived = pickle.loads(pickle.dumps(ours))
        assert (len(arrived), arrived.classes, arrived.samples) == (61, ours.classes, ours.samples)
        assert all(map(same, arrived, datasets.ImageFolder(noise.folder)))
        with pytest.raises(IndexError):
            arrived[61]
        assert len(shade_load.ImageFolder(copied.path)) == 62


def replace(path: Path, root: Path) -> None:
    """Puts another dataset in the place of the one at `path`, by a rename as the packer does it."""
    packed.image_folder(root / "other", "jpeg", {"ant": 3})
    packed.pack(root / "other", root / "other.shade")
    path.rename(root / "before")
    (root / "other.shade").rename(path)


class TestDamage:
    """Errors name sample, path, shard and place, and say what to do."""

    @pytest.fixture
    def damaged(self, noise: packed.Packed, tmp_path: Path) -> tuple[packed.Packed, str]:
        """A dataset whose sample 25 has a flipped bit, and what an error says of it."""
        copied = noise.copy_to(tmp_path / "damaged.shade")
        shard, offset, length = copied.stored(25)
        content = bytearray(shard.read_bytes())
        content[offset + length // 2] ^= 1
        shard.write_bytes(content)
        place = f"sample 25 (bee/012.png) in shard {shard.name} at byte {offset}: checksum mismatch"
        return copied, re.escape(place) + rf".*`shade-pack verify {copied.path}`.*damaged shards are made again"

    def test_a_damaged_record(self, damaged: tuple[packed.Packed, str], noise: packed.Packed) -> None:
        dataset, said = damaged
        ours = shade_load.ImageFolder(dataset.path)
        judge = datasets.ImageFolder(noise.folder)
        with pytest.raises(RecordError, match=said):
            ours[25]
        with pytest.raises(RecordError, match=said):
            ours.__getitems__(range(61))
        others = [sample for sample in range(61) if sample != 25]
        assert all(map(same, ours.__getitems__(others), (judge[sample] for sample in others)))
        told = packed.try_pack("verify", dataset.path).stdout
        assert "`shade-pack create SOURCE" in told, "what the error says to do says what to do"
        dataset.stored(25)[0].unlink()
        packed.run_pack("create", noise.folder, dataset.path)
        assert same(shade_load.ImageFolder(dataset.path)[25], judge[25]), "and that helps"

    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_data_loader_passes_it_on(self, damaged: tuple[packed.Packed, str], workers: int) -> None:
        dataset, said = damaged
        loader = DataLoader(shade_load.ImageFolder(dataset.path, TENSOR), BATCH, num_workers=workers)
        with pytest.raises(RecordError, match=said):
            list(loader)

    def test_a_shard_that_is_gone(self, noise: packed.Packed, tmp_path: Path) -> None:
        copied = noise.copy_to(tmp_path / "data.shade")
        shard, _, _ = copied.stored(0)
        ours = shade_load.ImageFolder(copied.path)
        shard.unlink()
        with pytest.raises(RecordError, match=rf"sample 0 \(ant/000.png\).*cannot open {re.escape(str(shard))}"):
            ours[0]

    def test_a_record_that_is_no_image(self, tmp_path: Path) -> None:
        (tmp_path / "folder" / "odd").mkdir(parents=True)
        (tmp_path / "folder" / "odd" / "text.png").write_bytes(b"no image at all")
        dataset = packed.pack(tmp_path / "folder", tmp_path / "data.shade")
        with pytest.raises(
            RecordError, match=r"sample 0 \(odd/text.png\) in shard .*: UnidentifiedImageError"
        ) as caught:
            shade_load.ImageFolder(dataset.path)[0]
        assert type(caught.value.__cause__).__name__ == "UnidentifiedImageError"

    def test_ctrl_c_ends_the_wait_for_a_shard_that_does_not_answer(self, noise: packed.Packed, tmp_path: Path) -> None:
        stuck = noise.copy_to(tmp_path / "stuck")
        script = """
import fcntl, os, signal, sys, threading
from pathlib import Path
import shade_load
items = shade_load.ImageFolder(sys.argv[1])
held = []
signal.signal(signal.SIGIO, signal.SIG_IGN)
for shard in Path(sys.argv[1]).glob("*.tar"):
    data = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(data)
    # An open of another file description waits until the lease is given up.
    held.append(shard.open("rb+"))
    fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
try:
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    items.__getitems__([0, 1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""
        command = [sys.executable, "-W", "ignore", "-c", script, stuck.path]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
        assert (done.returncode, done.stdout.strip()) == (0, "interrupted")


def test_without_torch_it_is_the_same_class_with_no_base(noise: packed.Packed) -> None:
    script = """
import sys
sys.modules["torch"] = None  # importing it fails
import shade_load
assert "PIL" not in sys.modules, "imported before it is needed"
items = shade_load.ImageFolder(sys.argv[1], target_transform=str)
assert shade_load.ImageFolder.__mro__ == (shade_load.ImageFolder, object)
assert shade_load.ImageFolder is shade_load.ImageFolder
image, target = items[-1]
print(len(items), image.mode, image.tobytes().hex(), target)
"""
    command = [sys.executable, "-W", "ignore", "-c", script, noise.path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = pixels(datasets.ImageFolder(noise.folder)[-1]).hex()
    assert done.stdout.split() == ["61", "RGB", expected, "2"]


def test_names_that_are_not_there_are_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ImageFolders'"):
        shade_load.ImageFolders  # noqa: B018
