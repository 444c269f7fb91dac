"""The pages of docs/reference and what they are about: the same names, here and there."""

import ast
import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import packed
import pytest
from shade_load import Loader

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/reference"
PACKAGE = ROOT / "trainer-bridge/py/python/shade_load"
RUST = ("formats", "images/src", "packer/src", "loader", "trainer-bridge")
VARIABLE = r"(?:[A-Z][A-Z0-9]*_)+[A-Z0-9]+|RANK"
# Names of that form which are no variables: of the compiler, of the package, of the system.
NO_VARIABLES = {
    "CARGO_PKG_VERSION", "DEBUG_BUILD", "LINGERS_FOR_EVER", "IORING_REGISTER_PROBE", "O_NONBLOCK",
    "RLIMIT_AS", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "SC_CLK_TCK",
}  # fmt: skip
# What libraries read (rustls-native-certs, object_store), and what the package computes from a
# program's name.
READ_ELSEWHERE = {
    "SSL_CERT_FILE", "SSL_CERT_DIR", "SHADE_LOAD_BIN", "SHADE_PACK_BIN", "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_USE_EMULATOR", "AZURITE_BLOB_STORAGE_URL", "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
}  # fmt: skip
# Where the exit code of each command's error is.
CODES = {
    "serve": "loader/daemon/src/daemon/start.rs",
    "doctor": "loader/daemon/src/doctor/cli.rs",
    "simulate": "loader/simulate/src/error.rs",
    "trace": "loader/daemon/src/trace/cli.rs",
    "status": "loader/daemon/src/ask/error.rs",
    "top": "loader/daemon/src/top.rs",
    "stop": "loader/daemon/src/ask/error.rs",
    "drain": "loader/daemon/src/ask/error.rs",
    "resize": "loader/daemon/src/ask/error.rs",
}


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "setup/reference.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def production(file: Path) -> str:
    return file.read_text(encoding="utf-8").split("#[cfg(test)]")[0]


def variables_in_sources() -> set[str]:
    """Every text in the sources that has the form of a variable's name, without those known to be none."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(VARIABLE, node.value):
                found.add(node.value)
    for folder in RUST:
        files = (file for file in (ROOT / folder).rglob("src/**/*.rs") if "tests" not in file.parts)
        found |= {name for file in files for name in re.findall(rf'"({VARIABLE})"', production(file))}
    return found - NO_VARIABLES


def test_environment_page_has_the_variables_of_the_sources() -> None:
    page = (PAGES / "environment.md").read_text(encoding="utf-8")
    named = {name for row in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert named == variables_in_sources() | READ_ELSEWHERE


def codes_in_source(file: str) -> set[int]:
    """The numbers in a source's `exit_code` functions."""
    bodies = re.findall(r"fn exit_code\(&self\) -> u8 \{\n(.*?)^    \}", production(ROOT / file), re.S | re.M)
    assert bodies, file
    return {int(number) for body in bodies for number in re.findall(r"(?<![\w.])\d+\b", body)}


def codes_in_help(command: list[str]) -> set[int]:
    """The numbers that begin a clause of "Exit codes: 0 done, 1 ..."."""
    shown = subprocess.run([*command, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    said = " ".join(shown.split("Exit codes: ")[1].split("\n\n")[0].split())
    return {int(number) for number in re.findall(r"(?:^|, |or )(\d+) (?=[a-z])", said)}


@pytest.mark.parametrize("command", CODES)
def test_exit_codes_are_those_of_the_sources_and_of_the_help(command: str) -> None:
    header, _, *rows = re.findall(r"^\|(.*)\|$", (PAGES / "exit-codes.md").read_text(encoding="utf-8"), re.M)
    (column,) = [at for at, cell in enumerate(header.split("|")) if f"`{command}`" in cell]
    told = {int(row.split("|")[0]) for row in rows if row.split("|")[column].strip()}
    # Success, and clap's code for a wrong command line.
    assert told == codes_in_source(CODES[command]) | {0, 2}
    assert told == codes_in_help([str(packed.program("shade-load")), command])


def test_exit_codes_of_the_packer() -> None:
    page = (ROOT / "docs/packing.md").read_text(encoding="utf-8").partition("\n## ")[0]
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)}
    files = [file for file in (ROOT / "packer/src").rglob("*.rs") if "fn exit_code" in production(file)]
    named = {code for file in files if "-> u8 {" in production(file) for code in codes_of(file)}
    assert told == named | {0, 1, 2}, "1 is also that of `diff`, 2 clap's"
    assert told == codes_in_help([str(packed.program("shade-pack"))])


def codes_of(file: Path) -> set[int]:
    return codes_in_source(str(file.relative_to(ROOT))) if re.search(r"^    (?:pub )?fn exit_code", production(file), re.M) else set()


def keys(page: str, chapter: str) -> set[str]:
    """The first column of a chapter's table."""
    body = page.split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", body, re.M))


def test_figures_have_the_keys_of_a_real_run(tmp_path: Path, reference: ModuleType) -> None:
    packed.image_folder(tmp_path / "photos", "png")
    dataset = packed.pack(tmp_path / "photos", tmp_path / "photos.shade")
    page = reference.stats_page()
    with Loader(dataset.path, 8, image_size=packed.SIDE) as loader:
        for _ in loader:
            pass
        figures, metrics = loader.stats(), loader.metrics()
    assert set(figures) == keys(page, "All")
    assert set(figures["epoch"]) == keys(page, "This epoch")
    assert set(figures["total"]) == keys(page, "This job")
    assert set(figures["rank"]) == keys(page, "This rank") == keys(page, "Each rank of a job")
    (job,) = figures["jobs"]
    assert set(job) == keys(page, "Each job")
    assert set(job["by_rank"][0]) == keys(page, "Each rank of a job")
    assert set(figures["read_latency"]) == keys(page, "Latency of reads")
    told = (ROOT / "docs/why-it-waits.md").read_text(encoding="utf-8")
    for name in metrics:
        short = name.removeprefix("shade/")
        assert f"`{name}`" in told or f"`_{short.split('_', 1)[-1]}`" in told, name
