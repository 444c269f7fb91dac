"""The repositories that the user brings, and the part of one at a commit."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from .ports import Port, Refused

HOME = "https://github.com"


def find(sources: Path, port: Port, clone: bool) -> Path:
    """The git directory or checkout of a port's repository; with `clone` it is made if it is not there.

    Raises:
        Refused: There is none, or it lacks the commit.
    """
    owner, name = port.repository.split("/")
    tried = [sources / f"{owner}+{name}", sources / owner / name, sources / name]
    found = next((path for path in tried if path.is_dir()), None)
    if found is None and clone:
        found = tried[0]
        sources.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", f"{HOME}/{port.repository}", found], check=True)
    if found is None:
        raise Refused(f"{sources}: has no {owner}+{name}: clone {port.repository} there, or give --clone")
    if _git(found, "cat-file", "-e", f"{port.commit}^{{commit}}").returncode:
        raise Refused(f"{found}: has no commit {port.commit}: run git fetch origin {port.commit} in it")
    return found


def unpack(repository: Path, port: Port, target: Path) -> None:
    """Writes the part of the repository that the script needs.

    Raises:
        Refused: The commit has no such part.
    """
    done = _git(repository, "archive", "--format=tar", port.commit, "--", *port.paths)
    if done.returncode:
        raise Refused(f"{repository}: {done.stderr.decode(errors='replace').strip()}")
    target.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")


def apply(port: Port, original: Path, target: Path) -> None:
    """Writes the ported files into a copy of the original's tree.

    Raises:
        Refused: A file is missing, or another one than the port was written for.
    """
    for file in port.files:
        path = original / file.path
        if not path.is_file():
            raise Refused(f"{path}: no such file")
        (target / file.path).write_bytes(file.edited(path.read_bytes(), str(path)))


def _git(repository: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    # A directory of another user's is read, too.
    command = ["git", "-c", "safe.directory=*", "-C", str(repository), *words]
    return subprocess.run(command, capture_output=True, check=False)
