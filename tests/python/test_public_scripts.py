"""The ports of public scripts: their files, their limits, and the runner with a small script of ours."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchvision")

from benches.public_scripts import __main__ as command
from benches.public_scripts import compare, data, ports, runs, scripts
from benches.public_scripts.compare import Run

SCRIPT = """\
one
two
three
four
five
"""
EDITS = """\
5a
six
.
3,4c
THREE
.
1d
"""
EDITED = "two\nTHREE\nfive\nsix\n"


def ed(edits: str, original: str = SCRIPT, file: str = "train.py", commit: str = "0" * 40) -> str:
    """A port's file."""
    digest = hashlib.sha256(original.encode()).hexdigest()
    header = {"repository": "someone/some", "commit": commit, "paths": ".", "file": file, "sha256": digest}
    return "".join(f"# {name}: {told}\n" for name, told in header.items()) + edits


def read(folder: Path, text: str) -> ports.Port:
    """The port in a text."""
    path = folder / "made.ed"
    path.write_text(text)
    return ports.read(path)


def repository(folder: Path, files: dict[str, str]) -> str:
    """A git repository with these files; its commit."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
    for words in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "--message", "made"]):
        subprocess.run(["git", "-C", folder, *words], check=True)
    done = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_edits_are_those_of_ed(tmp_path: Path) -> None:
    port = read(tmp_path, ed(EDITS))
    (file,) = port.files
    assert file.edited(SCRIPT.encode(), "train.py").decode() == EDITED
    assert (port.added, port.removed) == (2, 3)
    # ed itself reads "#" as a comment.
    script, lines = tmp_path / "train.py", SCRIPT.splitlines(keepends=True)
    script.write_text(SCRIPT)
    (tmp_path / "edited.py").write_text(EDITED)
    done = subprocess.run(["diff", "-e", script, tmp_path / "edited.py"], capture_output=True, text=True, check=False)
    again = read(tmp_path, ed(done.stdout)).files[0]
    assert again.edited("".join(lines).encode(), "train.py").decode() == EDITED


def test_a_port_may_have_several_files_and_blank_lines_that_do_not_count(tmp_path: Path) -> None:
    header, second = ed("1c\n\nonce\n.\n"), ed("2a\nmore\n.\n", file="other.py")
    port = read(tmp_path, header + "".join(line + "\n" for line in second.splitlines()[3:]))
    assert [file.path for file in port.files] == ["train.py", "other.py"]
    assert (port.added, port.removed) == (2, 1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ed("1d\n3d\n"), "line 1 is changed before line 3: write the last change first"),
        (ed("3,4d\n4d\n"), "line 3 is changed before line 4"),
        (ed("2a\nno end\n"), "do not end in one that is a dot"),
        (ed("2x\n"), "got '2x', expected a command of ed"),
        (EDITS, "the header lacks commit, file, paths, repository, sha256"),
        (ed("1a\n" + "more\n" * 11 + ".\n"), "adds 11 lines, expected at most 10"),
        (ed("1a\n" + "m" * 121 + "\n.\n"), "a line of 121 columns, expected at most 120"),
    ],
)
def test_what_is_no_port_is_refused(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ports.Refused, match=told):
        read(tmp_path, text)
    assert read(tmp_path, ed("1a\n" + "more\n" * 10 + ".\n")).added == ports.ADDED_MAX


def test_the_ports_here_add_few_lines_and_each_is_run() -> None:
    found = ports.all_ports()
    assert {port.name for port in found} == set(scripts.ALL) and len(found) == 8
    for port in found:
        assert 0 < port.added <= ports.ADDED_MAX
        assert len(port.commit) == 40 and all(len(file.sha256) == 64 for file in port.files)
        assert scripts.ALL[port.name].file in {file.path for file in port.files}
        assert any("shade_load" in line for file in port.files for edit in file.edits for line in edit.lines)


def test_a_port_is_applied_only_to_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = repository(tmp_path / "sources" / "someone+some", {"train.py": SCRIPT})
    written = tmp_path / "ports"
    written.mkdir()
    monkeypatch.setattr(ports, "FOLDER", written)

    def check(text: str) -> tuple[int, str]:
        (written / "made.ed").write_text(text)
        status = command.main(["--check", "--sources", str(tmp_path / "sources")])
        told = capsys.readouterr()
        return status, told.out + told.err

    assert check(ed(EDITS, commit=commit)) == (0, "made: +2 -3\n")
    for text, told in (
        (ed(EDITS, original="another\n", commit=commit), "its SHA-256 is"),
        (ed(EDITS), f"has no commit {'0' * 40}"),
        (ed("6a\nmore\n.\n", commit=commit), "has 5 lines, but the port changes line 6"),
        (ed("1a\n" + "more\n" * 11 + ".\n", commit=commit), "adds 11 lines"),
        (ed(EDITS, commit=commit).replace("/some", "/other"), "has no someone+other: clone someone/other there"),
        (ed(EDITS, commit=commit, file="missing.py"), "no such file"),
    ):
        status, output = check(text)
        assert status == 1 and output.startswith("error: ") and told in output


# Images of this size are not reduced while they are decoded.
TRAINING = """\
import sys
import torch
from torchvision import datasets, transforms
train = datasets.ImageFolder(sys.argv[1] + "/train", transforms.Compose([
    transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]))
val = datasets.ImageFolder(sys.argv[1] + "/val", transforms.Compose([
    transforms.Resize(72), transforms.CenterCrop(64), transforms.ToTensor()]))
train_loader = torch.utils.data.DataLoader(train, 16, shuffle=True, drop_last=True)
val_loader = torch.utils.data.DataLoader(val, 16)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(int(sys.argv[2]), int(sys.argv[2]) + 1):
    print(epoch)
    for images, labels in train_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    for images, labels in val_loader:
        model(images)
"""
PORTED = """\
13c
    train_loader.set_epoch(epoch)
.
8,9c
train_loader = Loader(sys.argv[1] + "/train.shade", 16, decode=train.transform, plan=Plan(tail="drop"))
val_loader = Loader(sys.argv[1] + "/val.shade", 16, decode=val.transform, train=False)
.
3a
from shade_load import Loader, Plan
.
"""
MADE = scripts.Script("train.py", data.photos, ("{data}",), ("0",), ("1",), ((0.0,) * 3, (1.0,) * 3), "bilinear")


# The runs of our script as it is, by their part: each test compares another port with them.
ORIGINALS: dict[str, Run] = {}


class Runner(runs.Runner):
    """Runs the original once for all tests. Its data are the same each time."""

    def _run(self, place: runs.Place, script: scripts.Script, data: data.Data, part: str, is_plain: bool) -> Run:
        if place.tree.parent.name != "original":
            return super()._run(place, script, data, part, is_plain)
        if part not in ORIGINALS:
            ORIGINALS[part] = super()._run(place, script, data, part, is_plain)
        return ORIGINALS[part]


def row(folder: Path, ported: str) -> dict[str, Any]:
    """The runner's row for our script with that port."""
    sources = folder / "sources"
    commit = repository(sources, {"train.py": TRAINING})
    port = read(folder, ed(ported, original=TRAINING, commit=commit))
    made = Runner(folder / "scratch", None).row(port, MADE, sources, None)
    return made | {"is_well": runs.is_well(made)}


def test_a_script_of_ours_is_run_and_compared(tmp_path: Path) -> None:
    made = row(tmp_path, PORTED)
    assert not made["failed"] and made["is_well"], made
    assert made["original"] == made["port"] == {"trains": True, "validates": True, "resumes": True}
    of_splits = {f"{what}, {split}" for what in ("len", "coverage") for split in ("training", "validation")}
    assert set(made["equal"]) == {"classes", "epochs"} | of_splits
    assert 0 < made["levels"]["validation"] <= 1.001 and 0 < made["levels"]["training"] <= 1.001
    (line,) = command.table([made]).splitlines()[2:]
    assert "| +4 -3 | yes / yes / yes | equal |" in line


def test_a_port_that_does_something_else_is_not_well(tmp_path: Path) -> None:
    unlike = PORTED.replace(', plan=Plan(tail="drop")', "").replace("train_loader.set_epoch(epoch)", "print(epoch)")
    made = row(tmp_path, unlike.replace("decode=val.transform", "decode=val.transform.transforms[1:]"))
    assert not made["failed"] and not made["is_well"]
    assert "the port has" in made["equal"]["len, training"] and "of 103 samples" in made["equal"]["coverage, training"]
    assert made["equal"]["epochs"] == "epochs [0, 0], expected [0, 1]"
    assert made["levels"]["validation"] > 10
    assert "**differ**: epochs, len, training, coverage, training" in command.table([made])


def test_a_script_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    made = row(tmp_path, PORTED.replace("train=False", "shuffle=False"))
    assert not made["is_well"] and made["original"]["resumes"] and not made["port"]["trains"]
    assert len(made["failed"]) == 2 and "shuffle is a DataLoader's: leave it out" in made["failed"][0]
    assert "**no** / **no** / **no** | **differ**: not run" in command.table([made])


def whole(ids: list[list[int]], labels: dict[int, int] | None = None, batches: int | None = None) -> Run:
    """A run with one pass over four samples."""
    told = [[(labels or {}).get(sample, 0) for sample in batch] for batch in ids]
    one = {"samples": 4, "batches": batches or len(ids), "classes": ["a", "b"], "ids": ids, "labels": told}
    one["is_whole"] = True
    return Run([one], [])


@pytest.mark.parametrize(
    ("differs", "told"),
    [
        (lambda: compare.lengths(whole([[0, 1], [2, 3]]), whole([[0, 1], [2, 3]], batches=3), 4), "the port has"),
        (lambda: compare.lengths(whole([[0, 1], [2, 3]]), whole([[0, 1, 2], [3]]), 4), "the port has"),
        (lambda: compare.coverage(whole([[0, 1], [2, 2]]), 4, drops=False), "3 of 4 samples in 4 rows"),
        (lambda: compare.coverage(whole([[0, 1], [2]]), 4, drops=False), "3 of 4 samples in 3 rows, expected 4"),
        (lambda: compare.coverage(whole([[0, 1], [2, 4]]), 4, drops=False), "4 of 4"),
        (lambda: compare.classes(whole([[0]]), whole([[0]], {0: 1}), FOUR), "sample 0 has label 1, expected 0"),
        (lambda: compare.classes(whole([[0]], {0: 1}), whole([[0]], {0: 1}), FOUR), "sample 0 has label 1, expected 0"),
        (lambda: compare.coverage(whole([[3, 1], [2, 0]]), 4, drops=False), None),
        (lambda: compare.lengths(whole([[0, 1], [2, 3]]), whole([[3, 1], [2, 0]]), 4), None),
        (lambda: compare.classes(whole([[0]]), whole([[0]]), FOUR), None),
    ],
)
def test_what_differs_is_told(differs: Callable[[], str | None], told: str | None) -> None:
    found = differs()
    assert found is None if told is None else found is not None and told in found


# Samples of a training split of four, all of the first class, and of another of five.
SPLITS = {"train": 4, "val": 5}
FOUR = data.Data(
    Path("nowhere"),
    "train",
    "val",
    {split: list(range(count)) for split, count in SPLITS.items()},
    {split: [0] * count for split, count in SPLITS.items()},
)
