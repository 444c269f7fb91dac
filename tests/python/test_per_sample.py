"""A function of single samples in processes: Loader(transform=PerSample(...))."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import packed
import pytest
import sample_functions
import torch
from shade_load import Daemon, Loader, LoaderTimeout, PerSample, Plan, Sample, ShadeError, Writer
from shade_load.transforms import CenterCrop, RandomHorizontalFlip, RandomResizedCrop

BATCH = 8
SIDE = packed.SIDE
CROPS = [RandomResizedCrop(12), RandomHorizontalFlip()]
# What a Loader delivers.
KINDS: dict[str, dict[str, Any]] = {
    "records": {},
    "images": {"decode": CROPS},
    "floats": {"image_size": (9, 14), "dtype": "float16"},
    "views": {"decode": [CROPS, [CenterCrop(7)]]},
    "own sizes": {"decode": "none"},
}
names = itertools.count()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("samples")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def loader(dataset: packed.Packed, function: Any = None, workers: int = 2, **arguments: Any) -> Loader:
    """A Loader with a job of its own, or a function's."""
    job = Daemon(job=f"samples-{next(names)}")
    transform = None if function is None else PerSample(function, workers=workers)
    return Loader(dataset.path, arguments.pop("batch_size", BATCH), transform=transform, **{"daemon": job, **arguments})


def samples(batch: Any, rows: int, seeds: list[int], kind: str) -> Iterator[Sample]:
    """The samples of a batch without a function, as a function gets them."""
    has_views = isinstance(batch.images, list) and kind == "views" if kind != "records" else False
    for row in range(rows):
        given: dict[str, Any] = {}
        if kind == "records":
            given["record"] = batch.records.to_bytes(row)
        elif has_views:
            given["image"] = [view[row].movedim(0, -1).contiguous().numpy() for view in batch.images]
        else:
            given["image"] = batch.images[row].movedim(0, -1).contiguous().numpy()
        yield Sample(int(batch.ids[row]), int(batch.labels[row]), batch.epoch, seeds[row], {}, **given)


def called_here(sample: Sample) -> dict[str, Any]:
    """What the function gives in a process that is seeded as promised."""
    random.seed(sample.seed)
    np.random.seed(sample.seed % 2**32)
    torch.manual_seed(sample.seed)
    return sample_functions.described(sample)


def check(plain: Any, made: Any, kind: str) -> list[tuple[int, int]]:
    """Compares a batch with what the function makes of the plain one here. Gives its (id, seed)s."""
    for column in ("ids", "labels", "weights", "flags"):
        assert torch.equal(getattr(plain, column), getattr(made, column)), column
    assert torch.equal(plain.padding, made.padding)
    seeds = made.images["seed"].tolist()
    for row, sample in enumerate(samples(plain, len(plain), seeds, kind)):
        expected = called_here(sample)
        assert list(made.images) == list(expected)
        got = {name: column[row] for name, column in made.images.items()}
        assert got["text"] == expected["text"] and got["fields"] == {}
        assert got["sample"] == expected["sample"]
        for name in ("crc", "seed", "flag"):
            assert got[name].item() == expected[name], name
        assert got["drawn"].tolist() == expected["drawn"].tolist()
        assert got["tensor"].dtype == torch.float16 and torch.equal(got["tensor"], expected["tensor"])
    return list(zip(made.ids.tolist(), seeds, strict=True))


def opened(stack: ExitStack, dataset: packed.Packed, function: Any, world: int, **arguments: Any) -> list[Loader]:
    """A Loader for each rank of one job."""
    shared = {"world_size": world, "daemon": Daemon(job=f"samples-{next(names)}"), "seed": 5, **arguments}
    return [stack.enter_context(loader(dataset, function, rank=rank, **shared)) for rank in range(world)]


def steps(loaders: list[Loader]) -> Iterator[list[Any]]:
    """One batch of each Loader at a time. All of them end together."""
    iterators = [iter(each) for each in loaders]
    while (batches := [next(each, None) for each in iterators])[0] is not None:
        yield batches
    assert batches == [None] * len(loaders)


@pytest.mark.parametrize(
    ("kind", "sampler", "tail", "world"),
    [
        ("records", "uniform", "even", 2),
        ("images", "echo", "pad", 1),
        ("floats", "sequential", "drop", 1),
        ("views", "uniform", "pad", 2),
        ("own sizes", "replacement", "even", 1),
    ],
)
def test_results_are_those_of_the_function_called_here(
    dataset: packed.Packed, kind: str, sampler: str, tail: str, world: int
) -> None:
    arguments = {"plan": Plan(sampler=sampler, tail=tail), **KINDS[kind]}
    with ExitStack() as stack:
        plain = opened(stack, dataset, None, world, **arguments)
        made = opened(stack, dataset, sample_functions.described, world, **arguments)
        seen, middle, state = [], len(plain[0]) // 2, None
        for epoch in range(2):
            for number, batches in enumerate(steps(plain + made)):
                for ours, theirs in zip(batches[:world], batches[world:], strict=True):
                    seen.append((epoch, *check(ours, theirs, kind)))
                if epoch == 1 and number == middle:
                    # Taken ahead are others by now.
                    state = made[0].state_dict()
        assert state is not None and state["batch"] == middle + 1
        for each in plain + made:
            each.load_state_dict(state)
        rest = [batches for batches in steps(plain + made)]
        assert len(rest) == len(plain[0]) - middle - 1
        again = [(1, *check(*pair, kind)) for batches in rest for pair in zip(batches[:world], batches[world:], strict=True)]
        assert again == seen[-len(again) :]
        if sampler == "uniform":
            # A sample's numbers are those of its epoch, whatever its place.
            assert len({(epoch, *pair) for epoch, *pairs in seen for pair in pairs}) == 2 * len(dataset)


def seeds(dataset: packed.Packed, **arguments: Any) -> list[tuple[int, int, int]]:
    """(epoch, id, seed) of all samples of two epochs."""
    world = arguments.pop("world", 1)
    with ExitStack() as stack:
        ranks = opened(stack, dataset, sample_functions.seed_alone, world, **arguments)
        found = []
        for epoch in range(2):
            for batches in steps(ranks):
                for batch in batches:
                    found += [(epoch, *pair) for pair in zip(batch.ids.tolist(), batch.images.tolist(), strict=True)]
    return found


def test_seeds_depend_on_the_sample_and_not_on_who_has_it(dataset: packed.Packed) -> None:
    ours = seeds(dataset)
    assert len({seed for _, _, seed in ours}) == 2 * len(dataset), "each sample has another one in each epoch"
    assert sorted(ours) == sorted(seeds(dataset, world=2, batch_size=5, workers=3))
    assert not {seed for _, _, seed in ours} & {seed for _, _, seed in seeds(dataset, seed=6)}
    for sampler in ("echo", "replacement"):
        repeated = seeds(dataset, plan=Plan(sampler=sampler), batch_size=32)
        assert len({(epoch, sample) for epoch, sample, _ in repeated}) < len(repeated)
        assert len({seed for _, _, seed in repeated}) == len(repeated), "each use of a sample has another one"


def test_a_batch_unpacks_into_results_and_labels(dataset: packed.Packed) -> None:
    with loader(dataset, sample_functions.pixels, image_size=SIDE) as made, loader(dataset, image_size=SIDE) as plain:
        for batch, other in zip(made, plain, strict=True):
            images, labels = batch
            assert torch.equal(images, other.images.movedim(1, -1).flip(1)) and images is batch["images"]
            assert torch.equal(labels, other.labels) and "records" not in batch
            moved = batch.to("cpu")
            assert torch.equal(moved.images, images) and moved.ids is not None
            images[:] = 0  # It may be written to.
    with loader(dataset, sample_functions.described) as made:
        batch = next(iter(made))
        assert "images" in batch and "records" not in batch and batch.to("cpu").images["text"] == batch.images["text"]


def test_fields_come_with_their_sample(tmp_path: Path) -> None:
    kinds = {"caption": str, "meta.json": dict, "vector": "float32[2]", "boxes": "int16[*, 4]", "blob": bytes}
    with Writer(tmp_path / "data.shade") as writer:
        for number in range(9):
            boxes = struct.pack(f"<{4 * (number % 3)}h", *range(4 * (number % 3)))
            more = {} if number == 4 else {"caption": f"Nr. {number}", "meta.json": json.dumps([number]).encode()}
            vector = struct.pack("<2f", number, -number)
            writer.add(np.zeros((4, 4, 3), np.uint8), None, vector=vector, boxes=boxes, blob=b"x" * number, **more)
    transform = PerSample(sample_functions.described, workers=2)
    job = Daemon(job=f"samples-{next(names)}")
    with Loader(tmp_path / "data.shade", 4, fields=kinds, image_size=4, transform=transform, daemon=job) as made:
        count = 0
        for batch in made:
            values, offsets = batch["boxes"]
            for row, fields in enumerate(batch.images["fields"]):
                assert all(fields[name] == batch[name][row] for name in ("caption", "meta.json", "blob"))
                assert fields["vector"].tolist() == batch["vector"][row].tolist()
                assert fields["boxes"].tolist() == values[offsets[row] : offsets[row + 1]].tolist()
                assert fields["boxes"].shape[1:] == (4,) and fields["boxes"].dtype == np.int16
                count += 1
    assert count == 9


def test_what_a_function_raises_names_the_sample_and_ends_the_epoch_in_its_turn(dataset: packed.Packed) -> None:
    plan = Plan(sampler="sequential", on_error="skip")
    with loader(dataset, sample_functions.FailsOnce(20), image_size=SIDE, plan=plan) as made:
        batches = iter(made)
        assert [next(batches).index for _ in range(2)] == [0, 1]
        with pytest.raises(ShadeError) as raised:
            next(batches)
        path = dataset.files[20].relative_to(dataset.folder)
        text = str(raised.value)
        assert f"sample 20 ({path}): KeyError: 'no box of this name'" in text
        assert 'raise KeyError("no box of this name")' in text and "sample_functions.py" in text
        assert next(batches, None) is None and made.state_dict()["batch"] == 2
        made.set_epoch(1)
        assert sum(map(len, made)) == len(dataset)


def test_what_a_function_raises_is_told_also_where_the_dataset_is_gone(dataset: packed.Packed, tmp_path: Path) -> None:
    own = dataset.copy_to(tmp_path / "own.shade")
    with loader(own, sample_functions.FailsOnce(20), image_size=SIDE, plan=Plan(sampler="sequential")) as made:
        batches = iter(made)
        next(batches)
        (own.path / "dataset.shade").rename(tmp_path / "taken.shade")
        with pytest.raises(ShadeError, match=r"failed with sample 20: KeyError: 'no box of this name'"):
            list(batches)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (sample_functions.of_own_sizes, r"it returned uint8 of \((1|2), 16, 3\), and uint8 of \((1|2), 16, 3\) before"),
        (sample_functions.nothing, "the function returned None, expected an array"),
        (sample_functions.NotThere(), "must be of a module that other processes can import"),
    ],
)
def test_results_and_functions_that_do_not_go_are_refused(dataset: packed.Packed, function: Any, said: str) -> None:
    with loader(dataset, function, image_size=SIDE) as made, pytest.raises(ShadeError, match=said):
        list(made)


def test_arguments_that_do_not_go_together_are_refused(dataset: packed.Packed) -> None:
    from torchvision import transforms

    with pytest.raises(TypeError, match="cannot be pickled.*at the top of a module"):
        PerSample(lambda sample: sample, workers=1)
    with pytest.raises(TypeError, match="expected a function"):
        PerSample("augment", workers=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="workers: got 0"):
        PerSample(sample_functions.pixels, workers=0)
    recipe = [transforms.Resize((8, 8)), transforms.ToTensor()]
    with pytest.raises(ValueError, match='dtype="float32"'):
        loader(dataset, sample_functions.pixels, decode=recipe)
    with pytest.raises(ValueError, match="no bfloat16"):
        loader(dataset, sample_functions.pixels, image_size=8, dtype="bfloat16")
    with loader(dataset, sample_functions.pixels, decode=recipe, dtype="float32") as made:
        assert next(iter(made)).images.dtype == torch.float32


def test_a_process_that_is_killed_is_named_and_the_next_iteration_has_others(dataset: packed.Packed) -> None:
    plan = Plan(sampler="sequential")
    with loader(dataset, sample_functions.DiesAt(9), image_size=SIDE, plan=plan) as made:
        with pytest.raises(ShadeError, match=r"process \d+ of PerSample was killed by SIGKILL at sample 9\. The next"):
            list(made)
        assert made.state_dict()["batch"] <= 1
        made.set_epoch(1)
        assert sum(map(len, made)) == len(dataset)


def counted(sample: Sample) -> int:
    sample.fields["calls"] = sample.fields.get("calls", 0) + 1
    return sample.fields["calls"]


def test_each_sample_has_fields_of_its_own(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 8, image_size=8, transform=PerSample(counted, workers=1)) as loader:
        assert {calls for batch in loader for calls in batch.images.tolist()} == {1}


def test_ctrl_c_in_the_middle_of_a_message_ends_the_processes_and_the_next_iteration_has_others(
    dataset: packed.Packed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(answers: Connection) -> None:
        os.read(answers.fileno(), 1)
        raise KeyboardInterrupt

    with loader(dataset, sample_functions.with_process, image_size=SIDE) as made:
        batches = iter(made)
        processes = set(next(batches).images[1].tolist())
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "recv", interrupted)
            with pytest.raises(KeyboardInterrupt):
                list(batches)
        assert not any(map(is_there, processes))
        with pytest.raises(ShadeError, match="interrupted: begin another iteration"):
            next(batches)
        assert sum(map(len, made)) == len(dataset), "the same epoch again"


def test_the_only_process_may_be_killed_between_two_batches(dataset: packed.Packed) -> None:
    with loader(dataset, sample_functions.with_process, workers=1, image_size=SIDE) as made:
        batches = iter(made)
        [process] = set(next(batches).images[1].tolist())
        os.kill(process, signal.SIGKILL)
        while is_there(process):
            time.sleep(0.01)
        with pytest.raises(ShadeError, match=f"process {process} of PerSample was killed by SIGKILL"):
            list(batches)
        assert {process} != set(next(iter(made)).images[1].tolist())


def test_a_small_ring_has_room_for_what_is_ahead(dataset: packed.Packed) -> None:
    # Two pages for each batch: three of them are less than half of the ring, and four are more.
    job = Daemon(job=f"samples-{next(names)}", ring=14 * 4096)
    with warnings.catch_warnings(), loader(dataset, sample_functions.seed_alone, daemon=job) as made:
        warnings.simplefilter("error")
        for _ in range(2):
            assert sum(len(labels) for _, labels in made) == len(dataset)


def test_a_function_that_gives_nothing_is_waited_for_a_bounded_time(dataset: packed.Packed, tmp_path: Path) -> None:
    file = tmp_path / "go"
    with loader(dataset, sample_functions.Waits(file), image_size=SIDE) as made:
        # Not by Daemon(timeout=...), by which a daemon would have to start in time, too.
        batches, made._patience.seconds = iter(made), 0.2
        told: list[str] = []
        # Before that, a busy machine may have no batch yet, or no process of the function's.
        while not told or not re.search(r"for the function of PerSample, which is at samples \d+", told[-1]):
            assert len(told) < 1000, told[-3:]
            with pytest.raises(LoaderTimeout) as caught:
                next(batches)
            told.append(str(caught.value))
        file.touch()
        made._patience.seconds = 300.0
        # No batch is lost by it.
        assert [batch.index for batch in batches] == list(range(len(made)))


def test_objects_stay_as_they_are(dataset: packed.Packed) -> None:
    with loader(dataset, sample_functions.of_lists) as made:
        batch = next(iter(made)).to("cpu")
        arrays, tensors, pairs = batch.images
        for sample, [array], [tensor], [pair] in zip(batch.ids.tolist(), arrays, tensors, pairs, strict=True):
            assert array.tolist() == list(range(sample % 3)) and tensor.tolist() == [sample]
            assert pair == sample_functions.Pair(0.5, float(sample)) and type(pair) is sample_functions.Pair


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (sample_functions.without_bytes, r"a result cannot be pickled \(.*, of a sample from \d+ to \d+"),
        (sample_functions.ends, r"SystemExit: enough of \d+"),
    ],
)
def test_what_is_no_result_is_told_with_its_sample(dataset: packed.Packed, function: Any, said: str) -> None:
    with loader(dataset, function) as made:
        for _ in range(2):
            with pytest.raises(ShadeError, match=r"(?s)failed with sample \d+ \(.*" + said):
                next(iter(made))


def test_another_epoch_is_set_after_a_wait_that_was_too_long(dataset: packed.Packed, tmp_path: Path) -> None:
    file = tmp_path / "there"
    with loader(dataset, sample_functions.Waits(file), image_size=SIDE) as made:
        state = made.state_dict()
        for go_on in (lambda: made.set_epoch(5), lambda: made.load_state_dict(state)):
            file.unlink(missing_ok=True)
            made._patience.seconds = 0.5
            batches = iter(made)
            with pytest.raises(LoaderTimeout):
                next(batches)
            go_on()
            file.touch()
            made._patience.seconds = 300.0
            epoch = made._at.epoch
            assert {(batch.epoch, batch.index) for batch in batches} == {(epoch, at) for at in range(len(made))}


def test_an_iteration_that_is_left_leaves_nothing_to_the_next(dataset: packed.Packed) -> None:
    with loader(dataset, sample_functions.pixels, image_size=SIDE) as made:
        for _ in range(3):
            for batch in made:
                if batch.index == 1:
                    break
        whole = [batch.ids for batch in made]
        assert torch.cat(whole).sort().values.tolist() == list(range(len(dataset)))


def places() -> int:
    """Mappings of results in this process."""
    return Path("/proc/self/maps").read_text().count("memfd:shade-per-sample")


def test_results_that_are_kept_stay_and_a_loop_that_keeps_none_needs_few_places(dataset: packed.Packed) -> None:
    with loader(dataset, sample_functions.pixels, image_size=SIDE, batch_size=2, seed=3) as made:
        assert max(places() for _ in made) <= 5
        # Each mapping has a descriptor of the same file.
        files = [path for path in Path("/proc/self/fd").iterdir() if "memfd:shade-per-sample" in str(path.resolve())]
        file = min(files, key=lambda path: int(path.name))
        length = file.stat().st_size
        assert max(places() for _ in made) <= 5
        assert file.stat().st_size == length, "places are used again"
        made.set_epoch(0)
        kept = [(batch.images, batch.ids.clone()) for batch in made]
        copies = [images.clone() for images, _ in kept]
        made.set_epoch(1)
        for batch in made:
            pass
        assert all(torch.equal(images, copy) for (images, _), copy in zip(kept, copies, strict=True))
        del kept[1:]
    last = batch.images
    del batch, made
    gc.collect()
    assert places() == 2
    assert torch.equal(kept[0][0], copies[0]) and len(last) > 0
    del kept, last
    assert places() == 0


def descriptors() -> set[str]:
    """What this process has open."""
    return {str(path.resolve()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}


def is_there(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def test_a_loader_that_is_closed_leaves_nothing(dataset: packed.Packed) -> None:
    def run() -> set[int]:
        with loader(dataset, sample_functions.with_process, image_size=SIDE) as made:
            found: set[int] = set()
            for images, _ in made:
                found.update(images[1].tolist())
                for process in found:
                    # Ctrl-C is for the trainer.
                    os.kill(process, signal.SIGINT)
                if len(found) == 2:
                    break
            assert os.getpid() not in found and all(map(is_there, found))
        return found

    # The first brings the server process that forks others.
    run()
    before = descriptors()
    assert not any(map(is_there, run()))
    # The thread that watches the daemon has a copy of the socket until the daemon hangs up.
    while not descriptors() <= before:
        time.sleep(0.01)
    assert places() == 0


def test_memory_of_one_sample_is_kept_for_the_next(dataset: packed.Packed) -> None:
    with loader(dataset, sample_functions.with_page_faults, workers=1) as made:
        faults = sorted(count for batch in made for count in batch[0].tolist())
    # Four blocks have 1024 pages.
    assert (faults[-1] - faults[20]) / len(faults[21:]) < 100


TRAINER = """
import sys

sys.modules["torch"] = None  # importing it fails
import numpy
import sample_functions
from shade_load import Daemon, Loader, PerSample

if __name__ == "__main__":
    path, job = sys.argv[1:]
    transform = PerSample(sample_functions.hangs_later, workers=2)
    with Loader(path, 4, image_size=8, transform=transform, daemon=Daemon(job=job)) as loader:
        found = set()
        for (images, process), labels in loader:
            assert type(images) is type(process) is numpy.ndarray and images.shape[1:] == (8, 8, 3)
            found.update(process.tolist())
        print(*found, flush=True)
        next(iter(loader))
"""


def test_processes_end_with_a_trainer_that_is_killed_and_need_no_torch(dataset: packed.Packed, tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    command = [sys.executable, "-W", "ignore", tmp_path / "trainer.py", dataset.path, f"samples-{next(names)}"]
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as trainer,
        ExitStack() as at_last,
    ):
        at_last.callback(trainer.kill)
        assert trainer.stdout is not None
        found = [int(word) for word in trainer.stdout.readline().split()]
        assert 0 < len(found) <= 2 and all(map(is_there, found))
        assert [trainer.stdout.readline() for _ in found] == ["hangs\n"] * len(found)
        trainer.kill()
        trainer.wait()
        while any(map(is_there, found)):
            time.sleep(0.02)
