"""What commands print as JSON, and `Loader.stats()`, are as docs/schemas describes them, key by key."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import packed
import pytest
from jsonschema import Draft202012Validator
from shade_load import Daemon, Loader
from shade_load.compare.points import Point
from shade_load.compare.told import Comparison

SCHEMAS = Path(__file__).parents[2] / "docs/schemas"
SIMULATED = "--samples 300 --batch-size 10 --epochs 2 --policy lookahead,lru --cache 20%,50%"


def strict(schema: Any) -> Any:
    """The schema with a refusal of keys that it does not have: later versions may add some, and describe them."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: strict(part) for key, part in schema.items()}
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object":
        inner["unevaluatedProperties"] = False
    return inner


def validator(name: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(strict(schema))


def check(name: str, printed: Any) -> Any:
    """Returns what was printed, parsed, if it is as docs/schemas/NAME.json says."""
    report = json.loads(printed) if isinstance(printed, str) else printed
    faults = [f"{fault.json_path}: {fault.message}" for fault in validator(name).iter_errors(report)]
    assert not faults, f"{name}: {faults}"
    return report


def load(*words: object, code: int = 0) -> str:
    """What `shade-load` prints."""
    done = subprocess.run([packed.program("shade-load"), *map(str, words)], check=False, capture_output=True, text=True)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def pack(name: str, *words: object, code: int = 0) -> Any:
    """The report of a `shade-pack` command."""
    done = packed.try_pack(*words, "--json")
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return check(name, done.stdout)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("schemas")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def test_a_key_that_is_not_described_is_found() -> None:
    progress = {"progress": "packing", "records": 1, "records_total": 1, "bytes": 1, "bytes_total": 1, "seconds": 0.5}
    checks = validator("shade-pack-progress")
    assert checks.is_valid(progress)
    assert not checks.is_valid({**progress, "new": 1})
    assert not checks.is_valid({**progress, "records": None})
    assert not checks.is_valid({key: value for key, value in progress.items() if key != "seconds"})


def test_a_training_and_its_daemon(dataset: packed.Packed) -> None:
    with Loader(dataset.path, 4, image_size=packed.SIDE, daemon=Daemon(job="described")) as loader:
        check("loader-stats", loader.stats())
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        stats = check("loader-stats", loader.stats())
        assert stats["rank"] and stats["read_latency"] and stats["jobs"]
        for name, command in (("shade-load-status", "status"), ("shade-load-top", "top --once --interval 100ms")):
            daemons = json.loads(load(*command.split(), "--json"))
            # Other daemons of this user may be other versions.
            [own] = check(name, [told for told in daemons if told["pid"] == loader.daemon_pid])
            assert own["jobs"][0]["name"] == "described" and own["jobs"][0]["by_rank"]


@pytest.mark.parametrize(
    "more", ["", "--store latency=1ms --compute 1ms/sample --recommend --seeds 2", "--nodes 2 --tier 30%", "--jobs 2"]
)
def test_simulate(more: str) -> None:
    report = check("shade-load-simulate", load("simulate", *SIMULATED.split(), *more.split(), "--json"))
    assert len(report["rows"]) >= 4


def test_doctor(dataset: packed.Packed) -> None:
    report = check("shade-load-doctor", load("doctor", dataset.path, "--probe-seconds", "1", "--json"))
    assert report["path"]["dataset"] and report["probe"]["steps"] and report["advice"]
    assert check("shade-load-doctor", load("doctor", "--json"))["path"] is None
    asked = load("doctor", "--tier", "valkey://127.0.0.1:1", "--json", code=1)
    assert check("shade-load-doctor", asked)["tier"]["error"]


def test_packing(dataset: packed.Packed, tmp_path: Path) -> None:
    folder, out = dataset.folder, tmp_path / "data.shade"
    done = packed.try_pack("create", folder, out, "--json", "--progress", "json")
    assert done.returncode == 0, done.stderr
    check("shade-pack-create", done.stdout)
    lines = [check("shade-pack-progress", line) for line in done.stderr.splitlines()]
    assert lines[-1]["records"] == len(dataset)
    assert pack("shade-pack-create", "create", folder, out)["unchanged"]
    assert pack("shade-pack-info", "info", out)["samples"] == len(dataset)
    for words in ((), ("--long",)):
        listed = packed.run_pack("ls", out, *words, "--json").splitlines()
        assert [check("shade-pack-ls", line)["id"] for line in listed] == list(range(len(dataset)))
    pack("shade-pack-verify", "verify", out)
    pack("shade-pack-extract", "extract", out, tmp_path / "back")
    assert pack("shade-pack-diff", "diff", folder, out)["same"]
    pack("shade-pack-subset", "subset", out, tmp_path / "some.shade", "--fraction", "0.5")
    (tmp_path / "labels.csv").write_text("path,label\nant/000.png,bee\n")
    words = ("--labels", tmp_path / "labels.csv", "--keep")
    assert pack("shade-pack-relabel", "relabel", out, tmp_path / "other.shade", *words)["changed"] == 1
    more = tmp_path / "more"
    packed.image_folder(more, "jpeg", {"bee": 3, "dog": 2})
    (more / "dog" / "note.png").write_text("no image")
    changed = tmp_path / "changed"
    shutil.copytree(folder, changed)
    (changed / "ant" / "000.png").write_bytes((changed / "ant" / "001.png").read_bytes())
    assert pack("shade-pack-diff", "diff", changed, out, code=1)["different"]
    pack("shade-pack-create", "create", more, tmp_path / "more.shade")
    merged = pack("shade-pack-merge", "merge", tmp_path / "all.shade", tmp_path / "more.shade", out, "--relabel")
    assert merged["relabelled"]
    assert pack("shade-pack-append", "append", more, out)["appended"] == 6
    shard, offset, _ = dataset.stored(7)
    damaged = dataset.copy_to(tmp_path / "damaged.shade")
    with (damaged.path / shard.relative_to(dataset.path)).open("r+b") as file:
        file.seek(offset)
        file.write(b"damage")
    assert pack("shade-pack-verify", "verify", damaged.path, code=3)["damaged"]


def test_an_index_of_images_in_place(dataset: packed.Packed, tmp_path: Path) -> None:
    folder, out = tmp_path / "images", tmp_path / "data.index"
    shutil.copytree(dataset.folder, folder)
    told = pack("shade-pack-index", "index", folder, out)
    assert told["probe"]["files"] == told["samples"] == len(dataset) and not told["checksums"]
    assert pack("shade-pack-index", "index", folder, out, "--update", "--exclude", "000.*")["changed"]
    assert pack("shade-pack-info", "info", out)["in_place"]["kind"] == "files"
    assert pack("shade-pack-verify", "verify", out)["without_checksum"]
    (folder / "ant" / "099.png").write_bytes(b"")
    assert pack("shade-pack-index", "index", folder, tmp_path / "some", "--on-bad", "skip", code=4)["bad"]


def test_packing_in_parts(dataset: packed.Packed, tmp_path: Path) -> None:
    folder, out = dataset.folder, tmp_path / "data.shade"
    pack("shade-pack-list", "list", folder, out, "--part", "0/1")
    assert pack("shade-pack-plan", "plan", folder, out, "--listed")["plan"]
    assert pack("shade-pack-finish", "finish", out, code=5)["missing_shards"]
    pack("shade-pack-create-part", "create", folder, out, "--part", "0/1")
    assert not pack("shade-pack-finish", "finish", out)["missing_shards"]


@pytest.mark.parametrize("seeds", [0, 1, 4])
def test_a_comparison(seeds: int) -> None:
    runs = {
        cell: {seed: [Point(1, 9, 0.5, 0.1), Point(2, 18, 1.0, 0.2, score + seed % 2)] for seed in range(seeds)}
        for cell, score in (("uniform", 70.0), ("echo", 70.5))
    }
    report = check("compare", Comparison("train.py", runs, 0.5, notes=["a note"]).as_json())
    assert len(report["verdicts"]) == (seeds > 0)


def test_every_schema_is_tried() -> None:
    files = (Path(__file__), Path(__file__).with_name("test_doctor_compare.py"))
    tried = "".join(file.read_text(encoding="utf-8") for file in files)
    names = {path.stem for path in SCHEMAS.glob("*.json")}
    assert names and [name for name in names if f'"{name}"' not in tried] == []
