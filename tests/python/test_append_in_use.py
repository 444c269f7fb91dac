"""`shade-pack append` to a dataset that is trained on: all that was attached, or attaches, goes on with what it has."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, Plan, ShadeError

BATCH = 8
FIELDS = {"note.txt"}


@pytest.fixture(params=[False, True], ids=["plain", "fields"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> packed.Packed:
    packed.image_folder(tmp_path / "folder", "png")
    plain = packed.pack(tmp_path / "folder", tmp_path / "plain.shade")
    if not request.param:
        return plain
    return packed.with_fields(plain, tmp_path, lambda sample: {"note.txt": str(sample).encode()})


def append(dataset: packed.Packed, root: Path, times: int = 1) -> None:
    """Adds samples of a class that is there and of one that is not, with a name between the others."""
    for number in range(times):
        more = root / f"more-{number}"
        for name in ("ant", "bat"):
            (more / name).mkdir(parents=True)
            shutil.copy(dataset.files[0], more / name / f"new-{number}.png")
        packed.run_pack("append", more, dataset.path)


def opened(dataset: packed.Packed, **options: Any) -> Loader:
    options = {"image_size": packed.SIDE, "daemon": Daemon(job=options.pop("job", "trains")), **options}
    return Loader(dataset.path, BATCH, **options)


def epoch(loader: Loader, dataset: packed.Packed, has_fields: bool) -> list[int]:
    """An epoch, whose labels, images and fields are compared with the source."""
    seen = []
    for batch in loader:
        ids = batch.ids.tolist()
        assert batch.labels.tolist() == [dataset.labels[sample] for sample in ids]
        fields = batch.fields()
        expected = [{"note.txt": str(sample).encode()} if has_fields else {} for sample in ids]
        assert fields == expected
        for sample, image in zip(ids, batch.images, strict=True):
            assert bytes(image.contiguous().numpy().tobytes()) == dataset.pixels(sample)
        seen += ids
    return seen


@pytest.mark.parametrize("times", [1, 2])
def test_a_training_its_validation_and_a_new_rank_go_on(
    dataset: packed.Packed, tmp_path: Path, times: int
) -> None:
    has_fields = dataset.path.name == "data.shade"
    everything = list(range(len(dataset)))
    with opened(dataset, train=True) as training:
        state = training.state_dict()
        append(dataset, tmp_path, times)
        # The first look at classes and fields comes after the append.
        assert training.classes == ["ant", "bee", "cat"] == training.dataset.classes
        assert sorted(epoch(training, dataset, has_fields)) == everything
        for options in ({"train": False}, {"job": "second"}, {"job": "third", "plan": Plan(indices=[3, 5])}):
            with pytest.warns(RuntimeWarning, match=f"gets the 61 samples.* and not all {61 + 2 * times}"):
                beside = opened(dataset, **options)
            with beside:
                assert beside.daemon_pid == training.daemon_pid
                assert (beside.samples, beside.classes) == (61, ["ant", "bee", "cat"])
                expected = [3, 5] if "plan" in options else everything
                assert sorted(epoch(beside, dataset, has_fields)) == expected
                beside.load_state_dict(state) if options == {"job": "second"} else None
        with pytest.raises((ShadeError, ValueError), match="61 samples|63|65"):
            opened(dataset, job="mask", plan=Plan(indices=[True] * (61 + 2 * times)))
        assert sorted(epoch(training, dataset, has_fields)) == everything
        old = training.daemon_pid
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(dataset) as training:
            # All have left: what was added is there.
            assert training.daemon_pid != old
            assert training.samples == 61 + 2 * times
            assert training.classes == ["ant", "bee", "cat", "bat"]


def test_a_rank_that_starts_again_joins_the_others(dataset: packed.Packed, tmp_path: Path) -> None:
    def rank(number: int) -> Loader:
        return opened(dataset, rank=number, world_size=2)

    with rank(0) as first:
        rank(1).close()
        append(dataset, tmp_path)
        with pytest.warns(RuntimeWarning, match="was added to while it is in use"), rank(1) as second:
            batches = [iter(first), iter(second)]
            ids = [sample for each in batches for batch in each for sample in batch.ids.tolist()]
            assert sorted(ids) == list(range(len(dataset)))


def test_another_dataset_is_refused_as_ever(dataset: packed.Packed, tmp_path: Path) -> None:
    packed.image_folder(tmp_path / "other", "png", {"ant": 30, "bee": 70})
    packed.pack(tmp_path / "other", tmp_path / "other.shade")
    with opened(dataset) as training:
        dataset.path.rename(tmp_path / "before")
        (tmp_path / "other.shade").rename(dataset.path)
        with pytest.raises(ShadeError, match="has changed: its index now says 100 samples"):
            opened(dataset, job="second")
        with pytest.raises(ShadeError, match="was replaced meanwhile"):
            _ = training.classes
