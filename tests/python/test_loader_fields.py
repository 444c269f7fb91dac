"""Extra fields of samples: read on demand, in the batch's order, parsed where they are JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Daemon, Loader, Plan, RecordError, ShadeError

BATCH = 8
Fields = dict[str, bytes]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("fields")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def fields_of(sample: int) -> Fields:
    """None for every fifth sample; the label's member is no field."""
    if sample % 5 == 0:
        return {}
    caption = {"caption": f"Nr. {sample} äöü", "boxes": [[0, 1, sample, 3.5]]}
    return {
        "json": json.dumps(caption, ensure_ascii=False).encode(),
        "more.json": b"[]",
        "cls": b"0",
        "txt": b"x" * sample * 100,
        "mask": bytes(range(256)) * (sample % 3),
    }


def expected(sample: int) -> dict[str, Any]:
    fields: dict[str, Any] = fields_of(sample)
    fields.pop("cls", None)
    return {name: json.loads(content) if "json" in name else content for name, content in fields.items()}


@pytest.fixture(scope="module")
def dataset(plain: packed.Packed, tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    return packed.with_fields(plain, tmp_path_factory.mktemp("with"), fields_of)


@pytest.mark.parametrize("image_size", [None, packed.SIDE])
@pytest.mark.parametrize("io", ["auto", "buffered"])
def test_every_sample_brings_its_fields(dataset: packed.Packed, image_size: int | None, io: Any) -> None:
    seen = []
    with Loader(
        dataset.path, BATCH, image_size=image_size, daemon=Daemon(io=io, job=f"fields-{image_size}-{io}")
    ) as loader:
        for batch in loader:
            ids = batch.ids.tolist()
            assert batch.fields() == [expected(sample) for sample in ids]
            seen += ids
    assert sorted(seen) == list(range(len(dataset)))
    assert batch.fields() == [expected(sample) for sample in batch.ids.tolist()], "the Loader is not needed"


def test_records_and_labels_are_what_they_were(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, daemon=Daemon(job="fields-records")) as loader:
        for batch in loader:
            for row, (sample, label) in enumerate(zip(batch.ids.tolist(), batch.labels.tolist(), strict=True)):
                assert batch.records.to_bytes(row) == dataset.files[sample].read_bytes()
                assert label == dataset.labels[sample]


def test_a_dataset_without_fields_gives_empty_dicts(plain: packed.Packed) -> None:
    with Loader(plain.path, BATCH, daemon=Daemon(job="no-fields")) as loader:
        for batch in loader:
            assert batch.fields() == [{}] * len(batch)


def test_fields_follow_substitutes_skipped_and_padding(dataset: packed.Packed, tmp_path: Path) -> None:
    # A copy with one damaged record. Its key is 5000 more than its id.
    damaged = dataset.copy_to(tmp_path / "damaged")
    bad = 7
    shard, offset, length = damaged.stored(5000 + bad)
    content = bytearray(shard.read_bytes())
    content[offset + length // 2] ^= 1
    shard.write_bytes(content)
    for on_error in ("skip", "substitute"):
        special = 0
        with Loader(
            damaged.path, BATCH, plan=Plan(on_error=on_error, tail="pad"), daemon=Daemon(job=f"fields-{on_error}")
        ) as loader:
            for batch in loader:
                ids = batch.ids.tolist()
                assert bad not in ids
                assert batch.fields() == [expected(sample) for sample in ids]
                special += batch.skipped + batch.substituted
        assert special == 1


def test_bad_json_names_sample_and_shard(plain: packed.Packed, tmp_path: Path) -> None:
    for number, content in enumerate([b"{", b"\xff\xfe\xfa", b"[" * 100_000]):
        bent = packed.with_fields(plain, tmp_path / str(number), lambda sample, content=content: {"meta.json": content})
        with Loader(bent.path, BATCH, daemon=Daemon(job=f"fields-json-{number}")) as loader:
            batch = next(iter(loader))
            sample = batch.ids.tolist()[0]
            with pytest.raises(RecordError, match=rf"'meta.json' of sample {sample} in shard shard-0\d+.tar is not JSON"):
                batch.fields()


def test_damaged_fields_are_a_record_error(dataset: packed.Packed, tmp_path: Path) -> None:
    damaged = dataset.copy_to(tmp_path / "damaged")
    for shard in damaged.path.glob("*.tar"):
        shard.write_bytes(shard.read_bytes().replace(b"caption", b"copsion"))
    with Loader(damaged.path, BATCH, daemon=Daemon(job="fields-damaged")) as loader:
        batch = next(iter(loader))
        with pytest.raises(RecordError, match=r"fields of sample \d+ \(\w+/\d+.png\) in shard shard-.* at byte \d+"):
            batch.fields()


def test_ids_that_were_written_over_are_refused(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, daemon=Daemon(job="fields-ids")) as loader:
        batch = next(iter(loader))
        batch.ids[3] = len(dataset)
        with pytest.raises(ValueError, match=f"sample: got {len(dataset)}"):
            batch.fields()


def test_a_replaced_dataset_is_an_error(dataset: packed.Packed, plain: packed.Packed, tmp_path: Path) -> None:
    replaced = dataset.copy_to(tmp_path / "replaced")
    with Loader(replaced.path, BATCH, daemon=Daemon(job="fields-replaced")) as loader:
        batch = next(iter(loader))
        index = replaced.path / "dataset.shade"
        index.unlink()
        index.write_bytes((plain.path / "dataset.shade").read_bytes())
        with pytest.raises(ShadeError, match="was replaced"):
            batch.fields()


def test_a_forked_child_is_told(dataset: packed.Packed) -> None:
    with Loader(dataset.path, BATCH, daemon=Daemon(job="fields-fork")) as loader:
        batch = next(iter(loader))
        child = os.fork()
        if child == 0:
            try:
                batch.fields()
            except ShadeError as error:
                os._exit(7 if "fork" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_ctrl_c_ends_the_wait_for_a_shard_that_does_not_answer(dataset: packed.Packed, tmp_path: Path) -> None:
    stuck = dataset.copy_to(tmp_path / "stuck")
    script = """
import fcntl, os, signal, sys, threading
from pathlib import Path
from shade_load import Daemon, Loader
with Loader(sys.argv[1], 8, daemon=Daemon(job="fields-stuck")) as loader:
    batch = next(iter(loader))
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
        batch.fields()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, stuck.path], stdout=subprocess.PIPE, text=True, timeout=600
    )
    assert (done.returncode, done.stdout.strip()) == (0, "interrupted")
