"""Extra columns of a list, and extra members of WebDataset tars, arrive in the training loop."""

import csv
import json
from pathlib import Path

import packed
import pytest
import webdataset
from shade_load import Daemon, Loader, Plan

BATCH = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> packed.Packed:
    root = tmp_path_factory.mktemp("fields")
    packed.image_folder(root / "folder", "png")
    return packed.pack(root / "folder", root / "data.shade")


def delivered(dataset: Path) -> dict[int, dict]:
    seen = {}
    with Loader(dataset, BATCH, plan=Plan(sampler="uniform"), daemon=Daemon(job="pack-fields")) as loader:
        for batch in loader:
            for sample, label, fields in zip(
                batch.ids.tolist(), batch.labels.tolist(), batch.fields(), strict=True
            ):
                seen[sample] = {"label": label, **fields}
    return seen


def test_columns_of_a_list(folder: packed.Packed, tmp_path: Path) -> None:
    with open(tmp_path / "list.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["caption", "path", "label", "place"])
        for sample, (path, label) in enumerate(zip(folder.files, folder.labels, strict=True)):
            writer.writerow([f'the "{sample}" th, ä', path, f"class {label}", "007" if sample % 2 else ""])
    packed.run_pack("create", tmp_path / "list.csv", tmp_path / "data.shade", "--shard-size", "64KiB")
    packed.run_pack("verify", tmp_path / "data.shade")
    seen = delivered(tmp_path / "data.shade")
    assert sorted(seen) == list(range(len(folder)))
    for sample, fields in seen.items():
        expected = {"caption": f'the "{sample}" th, ä'} | ({"place": "007"} if sample % 2 else {})
        assert fields == {"label": folder.labels[sample], "json": expected}


def test_members_of_tars(folder: packed.Packed, tmp_path: Path) -> None:
    (tmp_path / "tars").mkdir()
    mask = bytes(range(256)) * 7
    with webdataset.TarWriter(str(tmp_path / "tars" / "a.tar")) as writer:
        for sample, file in enumerate(folder.files):
            sidecar = {"label": folder.labels[sample], "n": sample}
            writer.write({"__key__": f"{sample:04}", "png": file.read_bytes(), "json": sidecar, "mask.bin": mask})
    options = ["--format", "raw", "--compress", "auto", "--cls"]
    packed.run_pack("create", tmp_path / "tars", tmp_path / "data.shade", *options)
    packed.run_pack("verify", tmp_path / "data.shade")
    for sample, fields in delivered(tmp_path / "data.shade").items():
        label = folder.labels[sample]
        assert fields == {"label": label, "json": {"label": label, "n": sample}, "mask.bin": mask}


def test_labels_from_a_map(folder: packed.Packed, tmp_path: Path) -> None:
    lines = ["path,label"] + [f"{file},{label}" for file, label in zip(folder.files, folder.labels, strict=True)]
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "names.json").write_text(json.dumps(["ant", "bee", "cat", "never seen"]))
    packed.run_pack(
        "create", tmp_path / "list.csv", tmp_path / "data.shade", "--labels", tmp_path / "names.json"
    )
    info = json.loads(packed.run_pack("info", tmp_path / "data.shade", "--json"))
    counts = {found["name"]: found["samples"] for found in info["classes"]}
    assert counts == packed.CLASSES | {"never seen": 0}
