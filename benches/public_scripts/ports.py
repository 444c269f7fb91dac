"""What is ours of a ported script: which file of which commit, and the edits, as `diff -e` writes them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).with_name("ports")
ADDED_MAX = 10
# Longer lines would hide what a port needs.
COLUMNS_MAX = 120
_COMMAND = re.compile(r"(\d+)(?:,(\d+))?([acd])")
_HEADER = re.compile(r"# (\w+): (.*)")


class Refused(Exception):
    """A port that is not what it says, or a script that is not the one it was written for."""


@dataclass(frozen=True)
class Edit:
    """Lines `first` to `last` of the original give way to `lines`. If `last` is before `first`, none does."""

    first: int
    last: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class FilePort:
    """The edits of one file, in the original's order."""

    path: str
    sha256: str
    edits: tuple[Edit, ...]

    def edited(self, original: bytes, place: str) -> bytes:
        """The ported file.

        Raises:
            Refused: The original is another file than the port was written for.
        """
        found = hashlib.sha256(original).hexdigest()
        if found != self.sha256:
            raise Refused(f"{place}: its SHA-256 is {found}, expected {self.sha256}: check out the port's commit")
        old = original.splitlines(keepends=True)
        new: list[bytes] = []
        at = 0
        for edit in self.edits:
            if edit.last > len(old):
                raise Refused(f"{place}: has {len(old)} lines, but the port changes line {edit.last}")
            new += old[at : edit.first - 1]
            new += [f"{line}\n".encode() for line in edit.lines]
            at = edit.last
        return b"".join(new + old[at:])

    @property
    def added(self) -> int:
        """Lines that are not blank; one that is changed counts."""
        return sum(bool(line.strip()) for edit in self.edits for line in edit.lines)

    @property
    def removed(self) -> int:
        """Lines of the original that are gone or changed."""
        return sum(edit.last - edit.first + 1 for edit in self.edits)


@dataclass(frozen=True)
class Port:
    """A script of a public repository and what we change in it."""

    name: str
    repository: str
    commit: str
    # Files and folders of the repository that the script needs.
    paths: tuple[str, ...]
    files: tuple[FilePort, ...]

    @property
    def added(self) -> int:
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed for file in self.files)


def read(path: Path) -> Port:
    """The port in a file.

    Raises:
        Refused: It is no port, adds more than `ADDED_MAX` lines, or lines of more than `COLUMNS_MAX` columns.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    header: dict[str, str] = {}
    files: list[FilePort] = []
    at = 0
    while at < len(lines):
        while at < len(lines) and (told := _HEADER.fullmatch(lines[at])):
            header[told[1]] = told[2]
            at += 1
        if missing := {"repository", "commit", "paths", "file", "sha256"} - header.keys():
            raise Refused(f"{path}: line {at + 1}: the header lacks {', '.join(sorted(missing))}")
        edits, at = _edits(path, lines, at)
        files.append(FilePort(header.pop("file"), header.pop("sha256"), edits))
    port = Port(path.stem, header["repository"], header["commit"], tuple(header["paths"].split()), tuple(files))
    if port.added > ADDED_MAX:
        raise Refused(f"{path}: adds {port.added} lines, expected at most {ADDED_MAX}")
    for file in files:
        for line in (line for edit in file.edits for line in edit.lines):
            if len(line) > COLUMNS_MAX:
                raise Refused(f"{path}: a line of {len(line)} columns, expected at most {COLUMNS_MAX}: {line}")
    return port


def all_ports() -> list[Port]:
    """Those in this folder, by name."""
    return [read(path) for path in sorted(FOLDER.glob("*.ed"))]


def _edits(path: Path, lines: list[str], at: int) -> tuple[tuple[Edit, ...], int]:
    """The commands from a line on until the next header or the end, in the original's order, and where they end."""
    edits: list[Edit] = []
    while at < len(lines) and not _HEADER.fullmatch(lines[at]):
        command = _COMMAND.fullmatch(lines[at])
        if command is None:
            expected = "a command of ed: LINE[,LINE] and a, c or d"
            raise Refused(f"{path}: line {at + 1}: got {lines[at]!r}, expected {expected}")
        first = int(command[1])
        last = int(command[2] or first)
        at += 1
        text: tuple[str, ...] = ()
        if command[3] != "d":
            if "." not in lines[at:]:
                raise Refused(f"{path}: line {at}: the lines of this command do not end in one that is a dot")
            end = lines.index(".", at)
            text, at = tuple(lines[at:end]), end + 1
        # Behind line `first` nothing gives way.
        edits.append(Edit(first + 1, first, text) if command[3] == "a" else Edit(first, last, text))
    # From the last line to the first, so that numbers are the original's.
    for later, earlier in pairwise(edits):
        if earlier.last >= later.first:
            order = f"line {later.first} is changed before line {earlier.last}"
            raise Refused(f"{path}: {order}: write the last change first")
    return tuple(reversed(edits)), at
