"""Loader([(dataset, share), ...]): one daemon delivers several datasets in one ratio, with united labels."""

import os
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

torch = pytest.importorskip("torch")

# They share two classes, which have other labels in the second one alone.
OTHER = {"bee": 9, "cat": 10, "dog": 11}
CLASSES = ["ant", "bee", "cat", "dog"]
SHARES = (0.7, 0.3)


@dataclass(frozen=True)
class Both:
    """Two datasets, and what a mixture of them must deliver: by sample id, its file and its label."""

    parts: tuple[packed.Packed, packed.Packed]

    def mixture(self, *shares: float) -> list[tuple[Path, float]]:
        return [(part.path, share) for part, share in zip(self.parts, shares or SHARES, strict=True)]

    @property
    def files(self) -> list[Path]:
        return [file for part in self.parts for file in part.files]

    @property
    def labels(self) -> list[int]:
        return [CLASSES.index(file.parent.name) for file in self.files]

    def pixels(self, sample: int) -> bytes:
        first, second = self.parts
        return first.pixels(sample) if sample < len(first) else second.pixels(sample - len(first))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    root = tmp_path_factory.mktemp("mixtures")
    packed.image_folder(root / "first", "png")
    packed.image_folder(root / "second", "jpeg", OTHER)
    # Compressed, with labels in the shards: as different as two datasets can be.
    first = packed.pack(root / "first", root / "first.shade", "--shard-size", "16KiB", "--compress", "zstd")
    return Both((first, packed.pack(root / "second", root / "second.shade", "--cls")))


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where indexes of mixtures are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/shade/mixtures"


def open_loader(both: Both, job: str, *, shares: tuple[float, ...] = SHARES, batch_size: int = 10, **more: Any) -> Loader:
    return Loader(both.mixture(*shares), batch_size, daemon=Daemon(job=job), **more)


def epochs(loader: Loader, count: int) -> list[list[list[int]]]:
    return [[batch.ids.tolist() for batch in loader] for _ in range(count)]


def test_each_batch_has_the_ratio_and_each_sample_its_record_and_united_label(both: Both) -> None:
    had: list[int] = []
    with open_loader(both, "raw", cache="50%") as loader:
        assert (loader.samples, loader.parts) == (91, (range(61), range(61, 91)))
        assert loader.classes == CLASSES and loader.class_to_idx["dog"] == 3
        # 61 / 0.7 samples, in whole batches.
        assert len(loader) == 9
        for _ in range(5):
            for batch in loader:
                ids = batch.ids.tolist()
                with torch.device("meta"):
                    # That of the ids, and not the default one.
                    parts = batch.parts
                assert parts.tolist() == [int(sample >= 61) for sample in ids]
                assert Counter(batch.parts.tolist()) == {0: 7, 1: 3}
                assert batch.labels.tolist() == [both.labels[sample] for sample in ids]
                for sample, record in zip(ids, batch.records, strict=True):
                    assert bytes(record.tolist()) == both.files[sample].read_bytes(), sample
                had += ids
    for part in loader.parts:
        of_part = [sample for sample in had if sample in part]
        for start in range(0, len(of_part), len(part)):
            in_a_pass = of_part[start : start + len(part)]
            assert len(set(in_a_pass)) == len(in_a_pass), "each sample once in a pass through its dataset"


def test_images_are_decoded_for_several_ranks(both: Both) -> None:
    def run(rank: int) -> list[tuple[int, list[int]]]:
        with open_loader(both, "ranks", image_size=packed.SIDE, rank=rank, world_size=2, exact=True) as loader:
            batches = []
            for batch in loader:
                assert batch.images.shape == (10, 3, packed.SIDE, packed.SIDE)
                for sample, image in zip(batch.ids.tolist(), batch.images, strict=True):
                    assert image.numpy().tobytes() == both.pixels(sample), sample
                batches.append((batch.index, batch.parts.tolist()))
            return batches

    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(run, range(2)))
    assert len(ranks[0]) == 5
    for (index, first), (same, second) in zip(*ranks, strict=True):
        assert index == same and Counter(first + second) == {0: 14, 1: 6}


@pytest.mark.parametrize(
    ("plan", "batches"),
    [
        (Plan(epoch_length="longest"), 10),
        (Plan(epoch_length=30), 3),
        (Plan(epoch_length=33, tail="drop"), 3),
        (Plan(sampler="balanced"), 9),
        (Plan(sampler="echo", order="spaced"), 9),
        (Plan(sampler="weighted", weights=range(91)), 9),
        (Plan(sampler="sequential"), 9),
        (Plan(order="hits_first", sampler="replacement"), 9),
        (Plan(sampler="pads", rep=2.0, order="opportunistic"), 9),
        (Plan(sampler="infobatch"), 9),
    ],
)
def test_samplers_orders_and_lengths(both: Both, plan: Plan, batches: int) -> None:
    with open_loader(both, "plans", plan=plan) as loader:
        assert len(loader) == batches
        for _ in range(3):
            of_first = []
            for batch in loader:
                of_first.append(sum(sample < 61 for sample in batch.ids.tolist()))
                if loader.needs_losses:
                    loader.report(batch, batch.ids.float())
            assert of_first == [7] * batches


def test_a_dataset_may_have_a_sampler_of_its_own(both: Both) -> None:
    (photos, share), (drawn, other) = both.mixture(*SHARES)
    with Loader([(photos, share), (drawn, other, "pads")], 10, daemon=Daemon(job="own")) as loader:
        assert loader.needs_losses
        had: list[int] = []
        weights: dict[int, set[float]] = {0: set(), 1: set()}
        for _ in range(4):
            for batch in loader:
                parts = batch.parts.tolist()
                assert Counter(parts) == {0: 7, 1: 3}
                had += [sample for sample in batch.ids.tolist() if sample < 61]
                for part, weight in zip(parts, batch.weights.tolist(), strict=True):
                    weights[part].add(weight)
                loader.report(batch, batch.ids.float())
    for start in range(0, len(had), 61):
        of_pass = had[start : start + 61]
        assert len(set(of_pass)) == len(of_pass), "permutations, pass after pass"
    assert weights[0] == {1.0} and len(weights[1]) > 1, "the second one is drawn by losses"


def test_a_state_goes_on_with_the_same_shares_only(both: Both) -> None:
    plan = Plan(epoch_length=50)
    with open_loader(both, "first", shares=(5, 1), batch_size=4, plan=plan) as loader:
        next(iter(loader))
        whole = epochs(loader, 1)[0]
        loader.set_epoch(3)
        third = epochs(loader, 1)[0]
        loader.set_epoch(2)
        batches = iter(loader)
        second = [next(batches).ids.tolist() for _ in range(5)]
        state = loader.state_dict()
        second += [batch.ids.tolist() for batch in batches]
        loader.load_state_dict(state)
        assert epochs(loader, 2) == [second[5:], third], "in the daemon that has saved it"
    with open_loader(both, "again", shares=(5, 1), batch_size=4, plan=plan) as loader:
        loader.load_state_dict(state)
        assert epochs(loader, 2) == [second[5:], third], "in another one"
        loader.set_epoch(0)
        assert epochs(loader, 1) == [whole], "epochs follow from their number"
    with open_loader(both, "other", shares=(5, 2), batch_size=4, plan=plan) as loader:
        with pytest.raises(ValueError, match=r"state: saved with parts=\[\[61, 5.0\], \[30, 1.0\]\] of a mixture"):
            loader.load_state_dict(state)


def test_a_validation_takes_each_sample_of_all_once_in_order(both: Both) -> None:
    with open_loader(both, "val", train=False) as loader:
        assert [sample for batch in epochs(loader, 1)[0] for sample in batch] == list(range(91))
        second = loader.parts[1]
    with open_loader(both, "part", train=False, plan=Plan(indices=second)) as loader:
        assert epochs(loader, 1) == [[list(range(start, start + 10)) for start in (61, 71, 81)]]
        assert all(batch.parts.tolist() == [1] * 10 for batch in loader)


def test_one_index_serves_until_a_dataset_has_another_content(both: Both, tmp_path: Path, kept: Path) -> None:
    own = both.parts[1].copy_to(tmp_path / "own.shade")
    mixture = [(both.parts[0].path, 1), (own.path, 1)]
    for _ in range(2):
        with Loader(mixture, 10) as loader:
            assert Path(loader.dataset.root).parent == kept.resolve()
        (index,) = kept.glob("*/dataset.shade")
    written = index.stat().st_mtime_ns
    more = tmp_path / "more"
    packed.image_folder(more, "png", {"emu": 3})
    packed.run_pack("append", more, own.path)
    with Loader(mixture, 10) as loader:
        assert loader.parts == (range(61), range(61, 94)) and loader.classes[-1] == "emu"
    assert len(list(kept.glob("*/dataset.shade"))) == 2 and index.stat().st_mtime_ns == written


def test_an_index_that_nothing_uses_is_removed_after_a_month(both: Both, tmp_path: Path, kept: Path) -> None:
    own = both.parts[1].copy_to(tmp_path / "own.shade")
    mixture = [(own.path, 1), (both.parts[0].path, 1)]

    def age(folder: Path, days: float) -> None:
        [used] = kept.glob(f"{folder.name}.used-*")
        os.utime(used, (time.time() - days * 86400,) * 2)

    def next_one(name: str) -> Path:
        """The folder of the mixture with another content, which is written now."""
        more = tmp_path / name
        packed.image_folder(more, "png", {name: 3})
        packed.run_pack("append", more, own.path)
        with Loader(mixture, 10) as loader:
            assert len(list(loader)) > 0
            return Path(loader.dataset.root)

    with Loader(mixture, 10) as loader:
        first = Path(loader.dataset.root)
        age(first, 31)
        second = next_one("elk")
        assert first.exists(), "a Loader uses it"
    del loader
    age(second, 29)
    third = next_one("emu")
    assert not first.exists() and not list(kept.glob(f"{first.name}*")) and second.exists()
    age(second, 31)
    (second / "mine").touch()
    shutil.rmtree(third)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/dataset.shade").touch()
    third.symlink_to(tmp_path / "elsewhere")
    age(third, 31)
    (kept / "other-0123456789abcdef").mkdir()
    fourth = next_one("fox")
    assert (second / "dataset.shade").exists() and (tmp_path / "elsewhere/dataset.shade").exists()
    assert (kept / "other-0123456789abcdef").exists() and fourth.exists()


def test_what_cannot_be_mixed_is_refused_by_name(both: Both, tmp_path: Path) -> None:
    path = both.parts[0].path
    for dataset, error, message in [
        ([], ValueError, "an empty list"),
        ([path], TypeError, r"in a list, expected \(dataset, share\)"),
        ([(path, 1, "pads", 2)], TypeError, r"expected \(dataset, share\) or \(dataset, share, sampler\)"),
        ([(path, 1, "padz")], ValueError, "sampler: .*padz"),
        ([(path, 1, "pads"), (path, 1, "seta")], ValueError, "sampler is infobatch or seta beside pads"),
        ([(path, 0)], ValueError, "share: got 0, expected 1e-06 to"),
        ([(path, "much")], TypeError, "share: got 'much'"),
        ([(5, 1)], TypeError, "got 5 in a list, expected the path of a folder, or an address"),
        ([(tmp_path, 1)], FileNotFoundError, "shade-pack create SRC OUT"),
        ([(path, 1)] * 17, ValueError, "parts is 17, but must be at most 16 datasets"),
    ]:
        with pytest.raises(error, match=message):
            Loader(dataset, 10)
    for plan, message in [
        (Plan(pace=True), "pace is given, but must be left out in a mixture"),
        (Plan(indices=[1]), "indices is given, but must be left out in a mixture"),
        (Plan(strata=2), "strata is 2, but must be 1 with a mixture"),
    ]:
        with pytest.raises(ValueError, match=message):
            open_loader(both, "refused", plan=plan)
    with pytest.raises(ValueError, match='epoch_length is given, but must be "first" for a dataset that is no mixture'):
        Loader(path, 10, plan=Plan(epoch_length="longest"))
    with pytest.raises(ValueError, match='epoch_length: got "last", expected "first", "longest", or a number'):
        Plan(epoch_length="last")  # type: ignore[arg-type]
    packed.run_pack("index", both.parts[0].folder, tmp_path / "placed")
    with pytest.raises(ShadeError, match="is an index of files in .*, and merge needs records in shards of its own"):
        Loader([(tmp_path / "placed", 1), (path, 1)], 10)
    with Loader(path, 10, daemon=Daemon(job="alone")) as loader:
        assert loader.parts == (range(61),)
        with pytest.raises(AttributeError, match="only a mixture has parts"):
            _ = next(iter(loader)).parts
