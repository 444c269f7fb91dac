"""Extra fields that come with each batch: Loader(fields=...)."""

import io
import itertools
import json
import os
import signal
import struct
import tarfile
from pathlib import Path
from typing import Any

import packed
import pytest
import torch
from PIL import Image
from shade_load import Daemon, ImageFolder, Loader, Plan, RecordError, ShadeError, Writer
from shade_load.transforms import CenterCrop, RandomHorizontalFlip, RandomResizedCrop

BATCH = 8
EVERY = {
    "caption": str,
    "meta.json": dict,
    "blob": bytes,
    "embedding": "float32[3, 2]",
    "index": "int64",
    "boxes": "float32[*, 4]",
    "tags": "int16[*]",
}


def fields_of(sample: int) -> dict[str, bytes]:
    """Each kind, of many lengths. Every fifth sample has only what all must have."""
    fields = {"embedding": struct.pack("<6f", *range(sample, sample + 6)), "index": struct.pack("<q", -sample)}
    if sample % 5 == 0:
        return {**fields, "cls": b"3"}
    return {
        "caption": (f"Nr. {sample} äöü" * (sample % 7)).encode(),
        "blob": bytes(range(256)) * (sample % 11),
        **fields,
        "meta.json": json.dumps({"id": sample}).encode(),
        "boxes": struct.pack(f"<{4 * (sample % 4)}f", *range(4 * (sample % 4))),
        "tags": struct.pack(f"<{sample % 3}h", *range(sample % 3)),
        "unwanted": b"x" * sample * 50,
    }


def check(batch: Any, wanted: dict[str, Any] = EVERY) -> None:
    """Compares the batch's fields with what was packed."""
    ids = batch.ids.tolist()
    packed_fields = [fields_of(sample) for sample in ids]
    has = [sample % 5 != 0 for sample in ids]
    columns: dict[str, Any] = {
        "caption": [fields["caption"].decode() if there else None for fields, there in zip(packed_fields, has)],
        "meta.json": [{"id": sample} if there else None for sample, there in zip(ids, has)],
        "blob": [fields.get("blob") for fields in packed_fields],
    }
    for name in wanted:
        assert name in batch and name in batch.keys()
        if name in columns:
            assert batch[name] == columns[name], name
    if "embedding" in wanted:
        assert batch["embedding"].dtype == torch.float32 and batch["embedding"].shape == (len(ids), 3, 2)
        assert batch["embedding"].flatten(1).tolist() == [list(range(sample, sample + 6)) for sample in ids]
    if "index" in wanted:
        assert batch["index"].tolist() == [-sample for sample in ids]
    if "boxes" in wanted:
        with torch.device("meta"):
            # Both on the CPU, whatever the default device is.
            values, offsets = batch["boxes"]
        counts = [sample % 4 if there else 0 for sample, there in zip(ids, has)]
        assert offsets.tolist() == [0, *itertools.accumulate(counts)]
        assert values.shape == (sum(counts), 4) and values.dtype == torch.float32
        for start, count in zip(offsets.tolist(), counts):
            assert values[start : start + count].flatten().tolist() == list(range(4 * count))
    if "tags" in wanted:
        tags, ends = batch["tags"].values, batch["tags"].offsets[1:]
        assert tags.dtype == torch.int16
        assert tags.tolist() == [tag for sample, there in zip(ids, has) if there for tag in range(sample % 3)]
        assert ends.tolist() == [*itertools.accumulate(sample % 3 * there for sample, there in zip(ids, has))]
    assert "unwanted" not in batch


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("batch-fields")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


@pytest.fixture(scope="module")
def dataset(plain: packed.Packed, tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    return packed.with_fields(plain, tmp_path_factory.mktemp("with"), fields_of)


def loader(dataset: packed.Packed | Path, **more: Any) -> Loader:
    path = dataset.path if isinstance(dataset, packed.Packed) else dataset
    return Loader(path, BATCH, **{"fields": EVERY, **more})


VIEWS = [[RandomResizedCrop(8), RandomHorizontalFlip()], [CenterCrop(4)]]


@pytest.mark.parametrize("decode", [None, [CenterCrop(8)], VIEWS, "none"], ids=["raw", "one", "views", "none"])
@pytest.mark.parametrize("cache", [0, "30%", "100%"])
def test_every_batch_has_the_fields_of_its_samples(dataset: packed.Packed, decode: Any, cache: Any) -> None:
    samplers = {0: ("uniform", {}), "30%": ("echo", {"echo": 2.0, "gap": 3}), "100%": ("pads", {"tail": "pad"})}
    sampler, plan = samplers[cache]
    seen = set()
    with loader(dataset, decode=decode, cache=cache, plan=Plan(sampler=sampler, **plan)) as batches:
        for _ in range(2):
            for batch in batches:
                check(batch)
                # This process reads the same.
                assert [fields.get("caption", b"").decode() for fields in batch.fields()] == [
                    caption or "" for caption in batch["caption"]
                ]
                if batches.needs_losses:
                    batches.report(batch, torch.rand(len(batch)))
                seen.update(batch.ids.tolist())
                assert dict(batch)["index"] is batch["index"]
        assert batches.stats()["epoch"]["skipped"] == 0
    assert seen == set(range(len(dataset)))


@pytest.mark.parametrize("on_error", ["skip", "substitute"])
@pytest.mark.parametrize("decode", [None, [CenterCrop(8)]], ids=["raw", "decoded"])
def test_fields_follow_bad_records(dataset: packed.Packed, tmp_path: Path, on_error: Any, decode: Any) -> None:
    damaged = dataset.copy_to(tmp_path / "damaged")
    bad = (7, 8, 21)
    for sample in bad:
        # Their keys are 5000 more than their ids.
        shard, offset, length = damaged.stored(5000 + sample)
        content = bytearray(shard.read_bytes())
        content[offset + length // 2] ^= 1
        shard.write_bytes(content)
    special = 0
    plan = Plan(on_error=on_error, bad_max=0.5)
    with loader(damaged, decode=decode, plan=plan, train=False) as batches:
        for batch in batches:
            assert not set(bad) & set(batch.ids.tolist())
            check(batch)
            special += batch.skipped + batch.substituted
    assert special == len(bad)


def test_a_damaged_field_is_a_bad_record(dataset: packed.Packed, tmp_path: Path) -> None:
    damaged = dataset.copy_to(tmp_path / "damaged")
    for shard in damaged.path.glob("*.tar"):
        shard.write_bytes(shard.read_bytes().replace(b'"id": 7}', b'"id": 6}'))
    with loader(damaged, train=False) as batches, pytest.raises(RecordError, match=r"sample 7 .* at byte \d+: checksum"):
        list(batches)
    # A daemon of its own does not read them.
    with loader(damaged, fields=None) as batches:
        assert sum(len(batch) for batch in batches) == len(dataset)
    with loader(damaged, train=False, plan=Plan(on_error="skip", bad_max=0.5)) as batches:
        for batch in batches:
            check(batch)


def test_what_is_not_of_its_kind_is_a_bad_record(dataset: packed.Packed) -> None:
    # Any of several bad records may be met first.
    for sample, fields, text in [
        (1, {"index": "float32[3]"}, r"its field \"index\" is to be float32\[3\], and is 8 bytes"),
        (0, {"caption": "float32[2]"}, r"it has no field \"caption\", which is to be float32\[2\]"),
        (1, {"blob": str}, r"its field \"blob\" is to be text, and is no UTF-8"),
        (1, {"caption": "json"}, r"its field \"caption\" is to be json, and is no JSON"),
        (1, {"nothing": "uint8[1]"}, r"it has no field \"nothing\", which is to be uint8\[1\]"),
    ]:
        options = {"fields": fields, "train": False, "plan": Plan(indices=[sample])}
        with loader(dataset, **options) as batches, pytest.raises(RecordError, match=f"sample {sample} .*{text}"):
            list(batches)
    with loader(dataset, fields=("nothing",), train=False) as batches:
        assert all(batch["nothing"] == [None] * len(batch) for batch in batches)


def test_names_alone_are_bytes_and_json(dataset: packed.Packed) -> None:
    with loader(dataset, fields=("caption", "meta.json"), train=False) as batches:
        for batch in batches:
            for sample, caption, meta in zip(batch.ids.tolist(), batch["caption"], batch["meta.json"]):
                assert caption == fields_of(sample).get("caption")
                assert meta == ({"id": sample} if sample % 5 else None)
            with pytest.raises(KeyError, match="'blob': the columns of this batch are .*caption, meta.json"):
                batch["blob"]


def test_wrong_arguments_say_what_is_expected(dataset: packed.Packed, plain: packed.Packed) -> None:
    for fields, error, text in [
        ("caption", TypeError, "got 'caption', expected names"),
        (3, TypeError, "got 3, expected names"),
        ({"a": 3}, TypeError, "float32"),
        ({"a": "float31[2]"}, ValueError, "float32"),
        (("a/b",), ValueError, "a/b"),
        (("labels",), ValueError, "a column that each batch has"),
        (tuple(f"f{number}" for number in range(17)), ValueError, "at most 16"),
    ]:
        with pytest.raises(error, match=text):
            loader(dataset, fields=fields)
    with pytest.raises(ShadeError, match="the dataset has none"):
        loader(plain)


def test_a_daemon_without_fields_says_how_to_start_one(dataset: packed.Packed, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with loader(dataset, fields=None, daemon=Daemon(job="first", socket=one)) as first:
        next(iter(first))
        with pytest.raises(ShadeError, match="serve --fields all"):
            loader(dataset, daemon=Daemon(job="second", socket=one))
    with loader(dataset, fields=None, daemon=Daemon(job="first", socket=other, fields=True)) as first:
        next(iter(first))
        with loader(dataset, daemon=Daemon(job="second", socket=other)) as second:
            check(next(iter(second)))


@pytest.fixture(scope="module")
def small_and_large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples with fields of a few bytes, of some hundred, and of 20 KB."""
    out = tmp_path_factory.mktemp("some") / "some.shade"
    image = io.BytesIO()
    Image.effect_noise((16, 16), 50).convert("RGB").save(image, "PNG")
    with Writer(out) as writer:
        for sample in range(40):
            more = {"note": bytes([sample]) * 300} if sample % 4 else {}
            writer.add(image.getvalue(), sample % 2, mask=os.urandom(20_000), caption=f"nr {sample}", **more)
    return out


def test_only_the_fields_with_names_are_read(small_and_large: Path, tmp_path: Path) -> None:
    read = {}
    for number, fields in enumerate([(), ("caption",), ("caption", "note"), ("mask",), ("nothing",)]):
        options: Any = {"train": False, "decode": [CenterCrop(8)], "daemon": Daemon(socket=tmp_path / str(number))}
        with loader(small_and_large, fields=fields or None, **options) as batches:
            for batch in batches:
                ids = batch.ids.tolist()
                if "caption" in fields:
                    assert batch["caption"] == [f"nr {sample}".encode() for sample in ids]
                if "note" in fields:
                    assert batch["note"] == [bytes([sample]) * 300 if sample % 4 else None for sample in ids]
                if "mask" in fields:
                    assert [len(mask) for mask in batch["mask"]] == [20_000] * len(ids)
            read[fields] = batches.stats()["total"]["bytes_read"]
    # Direct reads are whole blocks.
    assert read["nothing",] == read[()]
    assert read["caption", "note"] < read[()] + 40 * 3 * 4096
    assert read["caption",] <= read["caption", "note"]
    assert read["mask",] > read["caption", "note"] + 40 * 12_000


def test_a_daemon_that_reads_other_fields_says_so(small_and_large: Path, tmp_path: Path) -> None:
    for number, fields in enumerate([False, ("mask",), True]):
        socket = tmp_path / str(number)
        second: Any = {"fields": ("caption", "mask"), "daemon": Daemon(job="second", socket=socket)}
        first = Daemon(job="first", socket=socket, fields=fields)
        with loader(small_and_large, fields=("caption",), daemon=first) as batches:
            next(iter(batches))
            if not fields:
                with pytest.raises(ShadeError, match='does not read "mask"'):
                    loader(small_and_large, **second)
                continue
            with loader(small_and_large, **second) as others:
                assert len(next(iter(others))["mask"]) == BATCH
    for fields in iter(["b", "a"]), ("a", "b"), "b,a":
        daemon = Daemon(fields=fields)
        assert [daemon.settings(None, "permutations", more)["fields"] for more in ((), ["c"])] == ["a,b", "a,b,c"]
    for fields, text in (True, "all"), ("all", "all"), ("all,", "all,"), (False, "none"), ("none", "none"):
        assert Daemon(fields=fields).settings(None, "permutations")["fields"] == text
    with pytest.raises(TypeError, match="names of some"):
        Daemon(fields=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"caption,mask\.png"):
        Daemon(fields="a/b")


def test_arrays_of_numpy_are_numbers(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    arrays = [numpy.arange(number, number + 6, dtype=numpy.float32).reshape(2, 3) for number in range(20)]
    with Writer(tmp_path / "arrays.shade") as writer:
        for number, array in enumerate(arrays):
            points = numpy.full((number % 4, 2), number, dtype=numpy.int64)
            writer.add(numpy.zeros((4, 4, 3), numpy.uint8), None, array=array, points=points, text=f"a {number}")
    fields = {"array.npy": "float32[2, 3]", "points.npy": "int64[*, 2]", "text": str}
    with loader(tmp_path / "arrays.shade", fields=fields) as batches:
        for batch in batches:
            ids = batch.ids.tolist()
            assert batch["array.npy"].tolist() == [arrays[sample].tolist() for sample in ids]
            assert batch["text"] == [f"a {sample}" for sample in ids]
            values, offsets = batch["points.npy"]
            assert (offsets[1:] - offsets[:-1]).tolist() == [sample % 4 for sample in ids]
            assert values.tolist() == [[sample, sample] for sample in ids for _ in range(sample % 4)]
    folder = ImageFolder(tmp_path / "arrays.shade", fields=fields)
    _, _, found = folder[5]
    assert found["array.npy"].tolist() == arrays[5].tolist() and found["text"] == "a 5"
    assert found["points.npy"].tolist() == [[5, 5]]
    assert folder.__getitems__([4])[0][2]["points.npy"].shape == (0, 2)
    with loader(tmp_path / "arrays.shade", fields={"array.npy": "float32[3, 2]"}) as batches:
        with pytest.raises(RecordError, match=r"is to be float32\[3,2\], and is float32\[2,3\]"):
            next(iter(batches))


def test_a_map_style_dataset_has_them_too(dataset: packed.Packed) -> None:
    folder = ImageFolder(dataset.path, fields=EVERY)
    for sample in range(len(folder)):
        _, label, found = folder[sample]
        assert label == dataset.labels[sample] and found["index"].item() == -sample
        assert found["embedding"].flatten().tolist() == list(range(sample, sample + 6))
        packed_fields = fields_of(sample)
        assert found["blob"] == packed_fields.get("blob")
        assert found["caption"] == (packed_fields["caption"].decode() if sample % 5 else None)
    with pytest.raises(RecordError, match=r"sample 3 .*field \"caption\" is to be json"):
        ImageFolder(dataset.path, fields={"caption": "json"})[3]


def test_kept_batches_keep_their_fields(dataset: packed.Packed) -> None:
    with loader(dataset, decode=[CenterCrop(8)], train=False) as batches:
        kept = list(batches)
    for batch in kept:
        check(batch)


@pytest.mark.parametrize("order", ["behind", "before", "around"])
def test_fields_of_tars_that_were_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = {"behind": ("png", "txt", "vec"), "before": ("txt", "vec", "png"), "around": ("txt", "png", "vec")}[order]
    folder = tmp_path / "tars"
    folder.mkdir()
    image = io.BytesIO()
    Image.effect_noise((16, 16), 50).convert("RGB").save(image, "PNG")
    for shard in range(2):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for sample in range(shard * 10, shard * 10 + 10):
                content = {"png": image.getvalue(), "txt": b"n" * sample, "vec": struct.pack("<f", sample)}
                for name in names:
                    member = tarfile.TarInfo(f"{sample:04}.{name}")
                    member.size = len(content[name])
                    tar.addfile(member, io.BytesIO(content[name]))
    for decode in (None, [CenterCrop(8)]):
        with loader(folder, decode=decode, fields={"txt": str, "vec": "float32"}) as batches:
            for _ in range(2):
                for batch in batches:
                    ids = batch.ids.tolist()
                    assert batch["txt"] == ["n" * sample for sample in ids]
                    assert batch["vec"].tolist() == ids
                    if decode is None:
                        assert all(batch.records.to_bytes(row) == image.getvalue() for row in range(len(batch)))


@pytest.mark.parametrize("sampler", ["uniform", "echo", "pads"])
def test_fields_are_the_same_from_a_daemon_that_replaced_a_dead_one(dataset: packed.Packed, tmp_path: Path, sampler: Any) -> None:
    def epochs(name: str, kills: tuple[int, ...]) -> list[Any]:
        daemon, seen = Daemon(job=name, socket=tmp_path / name), []
        with loader(dataset, decode=[CenterCrop(8)], plan=Plan(sampler=sampler), daemon=daemon) as batches:
            for _ in range(2):
                for batch in batches:
                    check(batch)
                    seen.append((batch.ids.tolist(), batch["caption"], batch["boxes"].offsets.tolist()))
                    if batches.needs_losses:
                        batches.report(batch, [float(sample) for sample in seen[-1][0]])
                    if len(seen) in kills:
                        os.kill(batches.daemon_pid, signal.SIGKILL)
        return seen

    calm = epochs("calm", ())
    with pytest.warns(RuntimeWarning, match="was killed"):
        assert epochs("killed", (2, 9)) == calm
