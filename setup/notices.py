"""Writes the notices of what is linked into our programs and module: licences of crates, and of C code in them.

    notices.py FOLDER
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINKED_INTO = ("shade-load", "shade-pack", "shade-load-py", "shade-capi")
TEXT = re.compile(r"(licen[cs]e|unlicense|copying|copyright|notice|readme\.ijg)", re.IGNORECASE)
# Folders of a crate that are not compiled, and a format that repeats a text beside it.
NOT_LINKED = {"tests", "doc", "docs", "examples"}
# Where it is one of several to choose from, it is not the chosen one.
NOT_CHOSEN = "GNU GENERAL PUBLIC LICENSE"


def write_notices(folder: Path) -> None:
    """Writes our licence, THIRD-PARTY.txt and the notices of Rust's standard library into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    (folder / "THIRD-PARTY.txt").write_text(third_party(), encoding="utf-8")
    library = Path(output("rustc", "--print", "sysroot").strip()) / "share/doc/rust/COPYRIGHT-library.html"
    if library.is_file():
        (folder / "RUST-LIBRARY.html").write_bytes(library.read_bytes())
    else:
        print(f"notices: no {library}: a wheel for others needs it; rustup's toolchains have it")


def third_party() -> str:
    """A list of the crates, and below it each text once, under the crates that have it."""
    crates = linked_crates()
    owners: dict[str, list[str]] = defaultdict(list)
    for crate in crates:
        texts = licence_texts(Path(crate["manifest_path"]).parent)
        if not texts:
            raise SystemExit(f"notices: {crate['name']} {crate['version']} has no licence text: look for it, and say where")
        for name, text in texts:
            owners[text].append(f"{crate['name']} {crate['version']}: {name}")
    listed = [f"{crate['name']} {crate['version']}: {crate['license']}, {crate['repository']}" for crate in crates]
    parts = ["Software of others in shade-load, shade-pack and shade_load, with its licences.\n", "\n".join(listed)]
    parts += ["\n".join([*names, "", text]) for text, names in owners.items()]
    return f"\n\n{'=' * 80}\n".join(parts) + "\n"


def linked_crates() -> list[dict]:
    """Packages of others that are linked, by `cargo metadata`'s description, sorted by name."""
    options = [word for name in LINKED_INTO for word in ("--package", name)]
    tree = output("cargo", "tree", "--locked", "--edges", "normal", "--prefix", "none", *options)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    described = json.loads(output("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host()))
    found = [crate for crate in described["packages"] if (crate["name"], f"v{crate['version']}") in linked and crate["source"]]
    return sorted(found, key=lambda crate: (crate["name"], crate["version"]))


def licence_texts(folder: Path) -> list[tuple[str, str]]:
    """Names and contents of a crate's licences, also of the C code in it."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not TEXT.match(path.name) or not path.is_file() or NOT_LINKED & set(name.parts) or path.suffix in (".rtf", ".rs"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        if NOT_CHOSEN not in text[:200]:
            found.append((str(name), text))
    return found


def host() -> str:
    return re.search(r"^host: (.*)$", output("rustc", "-vV"), re.MULTILINE)[1]


def output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    write_notices(Path(sys.argv[1]))
