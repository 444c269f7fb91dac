"""What `make release` refuses and makes before it compiles, the workflows, and the repository's one address."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "setup"))
import address  # noqa: E402
import bill  # noqa: E402
import release  # noqa: E402

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ADDRESS = "https://example.org/shade-loader/shade"
LINE_COLUMNS_MAX = 100


def copy_of(files: list[str], folder: Path) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)


def test_only_a_tree_that_is_ready_is_released(tmp_path: Path) -> None:
    copy_of(["Cargo.toml", *(f"setup/{name}.py" for name in ("release", "wheel", "bill", "notices", "address"))], tmp_path)
    changelog, manifest = tmp_path / "CHANGELOG.md", tmp_path / "Cargo.toml"
    version = tomllib.loads(manifest.read_text())["workspace"]["package"]["version"]

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    def refused() -> str:
        command = [sys.executable, "-B", tmp_path / "setup/release.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stderr

    git("init", "--quiet")
    changelog.write_text("# Changelog\n\n## [Unreleased]\n")
    assert "changes that are not committed" in refused()
    git("add", ".")
    git("commit", "--quiet", "--message", "all")
    git("tag", f"v{version}")
    assert f"v{version} is tagged already" in refused()
    git("tag", "--delete", f"v{version}")
    assert f"CHANGELOG.md has no section [{version}]" in refused()
    changelog.write_text(f"# Changelog\n\n## [{version}] - 2026-12-01\n\n- All.\n")
    manifest.write_text(re.sub(r'(?m)^repository = ".*"$', 'repository = ""', manifest.read_text()))
    git("commit", "--quiet", "--all", "--message", "section")
    assert "no address of the repository" in refused()


def test_the_notes_are_the_section_of_the_version() -> None:
    changelog = "# Changelog\n\n## [Unreleased]\n\n- New.\n\n## [0.2.0] - 2026-12-01\n\n- A.\n\n### Fixed\n\n- B.\n"
    changelog += "\n## [0.1.0] - 2026-11-01\n\n- C.\n"
    assert release.notes(changelog, "0.2.0") == "- A.\n\n### Fixed\n\n- B.\n"
    assert release.notes(changelog, "0.1.0") == "- C.\n"
    assert release.notes(changelog, "Unreleased") == "- New.\n"


def test_the_bill_of_materials_has_what_is_linked() -> None:
    components = json.loads(bill.bill_of_materials())["components"]
    found = {component["purl"]: component for component in components}
    names = {component["name"] for component in components}
    assert {"pyo3", "zstd-sys", "turbojpeg-sys", "ring", "io-uring", "ratatui"} <= names
    assert not {"proptest", "fuser", "moka"} & names, "of tests and benches"
    for crate in tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))["package"]:
        component = found.pop(bill.purl(crate), None)
        assert component is None or component["hashes"][0]["content"] == crate["checksum"]
    assert not found, "in no other version than the locked one"


def test_the_source_has_all_that_it_needs_and_nothing_built(tmp_path: Path) -> None:
    archive = release.make_source(tmp_path)
    release.check_source(archive)
    with tarfile.open(archive) as members:
        names = members.getnames()
    assert not [name for name in names if re.search(r"\.so$|/capi/lib|_native\.data|/target/", name)]


def test_downloads_are_checked_by_the_checksums(tmp_path: Path) -> None:
    made, downloads = tmp_path / "made", tmp_path / "downloads"
    packages = made / release.PACKAGES.name
    packages.mkdir(parents=True)
    downloads.mkdir()
    files = (packages / "shade_load.whl", packages / "shade_load.tar.gz", made / bill.BILL)
    for file in files:
        file.write_text(f"{file.name}\n")
    release.write_checksums(made)
    # The page has what this line of the workflow names, in one folder.
    workflow = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    (line,) = (line for line in workflow.splitlines() if "--notes-file" in line)
    for name in line.split("NOTES.md", 1)[1].split():
        for file in made.glob(name.removeprefix("release/")):
            shutil.copy(file, downloads)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    assert subprocess.run(check, cwd=downloads, capture_output=True, text=True, check=False).stdout.count(": OK") == len(files)
    (downloads / bill.BILL).write_text("other\n")
    assert subprocess.run(check, cwd=downloads, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_run_targets_of_make_and_pinned_actions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}, "each job names its own"
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [step["run"].split()[1] for step in steps if step.get("run", "").startswith("make ")]
    assert targets and all(re.search(rf"^{target}:", makefile, re.M) for target in targets), targets
    uses = re.findall(r"uses: (.*)", text)
    assert uses and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", use) for use in uses), uses


def test_only_the_job_that_publishes_has_the_token_that_pypi_trusts() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    trusted = [name for name, job in workflow["jobs"].items() if "id-token" in job["permissions"]]
    assert trusted == ["publish"] and workflow["jobs"]["publish"]["environment"] == "release"
    assert "secrets" not in str(workflow)
    taken = [step["with"].get("packages-dir") for step in workflow["jobs"]["publish"]["steps"]]
    assert taken == [None, f"release/{release.PACKAGES.name}"], "what make release has put there"


def test_zizmor_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    command = [Path(sysconfig.get_path("scripts")) / "zizmor", "--offline", "--quiet"]
    done = subprocess.run([*command, *WORKFLOWS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    bad = tmp_path / ".github/workflows/bad.yml"
    bad.parent.mkdir(parents=True)
    bad.write_text(re.sub(r"@[0-9a-f]{40} # ", "@", WORKFLOWS[0].read_text(encoding="utf-8")), encoding="utf-8")
    assert subprocess.run([*command, bad], capture_output=True, check=False).returncode != 0, "it can find something"


def test_the_address_stands_in_cargo_toml_and_pages_follow(tmp_path: Path) -> None:
    files = sorted({address.PAGE, *(place.file for place in address.PLACES)})
    copy_of([*files, "Cargo.toml"], tmp_path)
    own = address.package(ROOT)["repository"]
    assert address.write(tmp_path, own) == [], "run python3 setup/address.py"
    before = {file: (tmp_path / file).read_text(encoding="utf-8") for file in files}
    address.write(tmp_path, "")
    without = {file: (tmp_path / file).read_text(encoding="utf-8") for file in files}
    assert sorted(address.write(tmp_path, ADDRESS)) == files
    for file in files:
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert ADDRESS in text, file
        if file.endswith(".md"):
            wide = [line for line in text.splitlines() if ADDRESS in line and len(line) > LINE_COLUMNS_MAX]
            assert not wide, f"{file}: {wide}"
            assert not re.search(r"\]\((?:/|\s*\))", text), f"{file}: a link without its address"
    assert f"git clone {ADDRESS} shade" in (tmp_path / "docs/install.md").read_text(encoding="utf-8")
    address.write(tmp_path, "")
    assert without == {file: (tmp_path / file).read_text(encoding="utf-8") for file in files}
    assert before == without or own


@pytest.mark.parametrize("where", ["", ADDRESS])
def test_no_link_of_a_package_page_needs_a_checkout(where: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = address.page(readme, where, "1.2.3")
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert all(link.startswith("https://") for link in links), links
    inside = re.findall(rf"{ADDRESS}/(blob|raw)/v1\.2\.3/([^)#]+)", page)
    assert bool(inside) == bool(where) and all((ROOT / file).is_file() for _, file in inside), inside
    pictures = {file for kind, file in inside if kind == "raw"}
    assert pictures == ({"docs/pictures/demo.png"} if where else set())
    assert "<!--" not in page
    # Only links and comments are different.
    words = re.compile(r"\w+")
    left = address.LINK.sub(lambda found: found[2] if not found[1] else "", re.sub("<!--.*?-->", "", readme, flags=re.S))
    assert where or words.findall(page) == words.findall(left)


def test_the_citation_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["license"] == "Apache-2.0"
    (paper,) = citation["references"]
    assert paper["year"] == 2023 and paper["authors"][0]["family-names"] == "Khan"
