"""Every example of README and docs runs as it stands there, page by page, on a small dataset.

Above a block that cannot run a comment, which no reader sees, says `not run by the tests: ...`. The
block is parsed, and each of our programs' options, scripts and targets in it must exist.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import packed
import pytest

pytest.importorskip("torchvision")

ROOT = Path(__file__).parents[2]
NOT_RUN = "<!-- not run by the tests: "
FOLDERS = ("formats", "images", "packer", "loader", "trainer-bridge", "tests", "benches", "demo", "studies")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("**/*.md"),
        *(page for folder in FOLDERS for page in (ROOT / folder).glob("**/README.md")),
    ]
    if not {".venv", "target"} & set(path.parts)
)
# Pages whose examples take datasets for granted that another page has packed.
TAKE_DATASETS = (
    "docs/loader.md",
    "docs/operations.md",
    "docs/why-it-waits.md",
    "docs/in-your-script.md",
    "docs/recipes.md",
    "docs/jax.md",
    "docs/aspect-ratios.md",
    "docs/from-mosaicml.md",
    "docs/from-litdata.md",
    "docs/from-ffcv.md",
    "docs/images.md",
    "docs/augment-on-the-gpu.md",
    "docs/per-sample.md",
    "AGENTS.md",
)
# test_wheel.py runs it: its first command installs the wheel.
TUTORIAL = "docs/tutorial.md"
# What the examples leave to their reader, and the words of it.
READERS = """
import torch
from torchvision.transforms import v2

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 224 * 224, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
augment = v2.Compose([v2.PILToTensor(), v2.RandomCrop(8)])
"""
READERS_WORDS = re.compile(r"\b(torch|v2|model|optimizer|augment)\b")
# What runs on less, for the tests' time.
SMALLER = {"--samples 100000": "--samples 2000", "IMAGES = 2000": "IMAGES = 150"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    text: str
    runs: bool


def blocks(page: str, *languages: str) -> list[Block]:
    """The page's blocks in these languages, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(rf"^({NOT_RUN}[^\n]*\n)?```(\S*)[^\n]*\n(.*?)^```$", text, re.S | re.M)
    return [Block(page, language, body, not reason) for reason, language, body in found if language in languages]


def pages_that(choose: Callable[[Block], bool]) -> list[str]:
    return [page for page in PAGES if any(choose(block) for block in blocks(page, "sh", "python"))]


def as_python(block: Block) -> str:
    """The block as a part of one script."""
    text = block.text
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    if block.language == "python":
        return text
    return f'subprocess.run(["bash", "-eu", "-c", {text!r}], check=True)\n'


def script(page: str) -> str:
    shown = [block for block in blocks(page, "sh", "python") if block.runs]
    # An import of torch takes seconds.
    needs_more = any(READERS_WORDS.search(block.text) for block in shown if block.language == "python")
    return "\n".join(["import subprocess", READERS if needs_more else "", *map(as_python, shown)])


def run(page: str, folder: Path) -> str:
    """Runs a page's blocks one after the other; gives what they print."""
    packed.image_folder(folder / "photos/train", "png")
    packed.image_folder(folder / "photos/val", "png")
    packed.image_folder(folder / "more-photos", "jpeg")
    packed.image_folder(folder / "scenes/imgs", "jpeg")
    packed.image_folder(folder / "scenes/masks", "png")
    if page in TAKE_DATASETS:
        plain = packed.pack(folder / "photos/train", folder / "plain.shade")
        captioned = packed.with_fields(
            plain, folder / "captions", lambda sample: {"json": f'{{"caption": {sample}}}'.encode()}
        )
        captioned.path.rename(folder / "photos-train.shade")
        packed.pack(folder / "photos/val", folder / "photos-val.shade")
    (folder / "script.py").write_text(script(page), encoding="utf-8")
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "script.py"]
    programs = packed.program("shade-load").parent
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{page}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_pages_have_examples() -> None:
    shown = pages_that(lambda block: block.runs)
    assert {"README.md", "docs/loader.md", "docs/packing.md", "docs/simulate.md"} <= set(shown)
    languages = {block.language for block in blocks("README.md", "", "text", "sh", "python", "console", "bash")}
    assert languages == {"sh", "python"}, "a block in another language would not run"


@pytest.mark.parametrize("page", pages_that(lambda block: block.runs and block.page != TUTORIAL))
def test_examples_run_in_their_order(page: str, tmp_path: Path) -> None:
    printed = run(page, tmp_path)
    if page == "README.md":
        epochs = [line for line in printed.splitlines() if "hits" in line and line.startswith("{")]
        assert len(epochs) == 10, "figures of each epoch"
    if page == "docs/packing.md":
        assert (tmp_path / "back/ant/000.png").read_bytes() == (tmp_path / "photos/train/ant/000.png").read_bytes()


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_in_a_language_that_would_not_run(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    fences = re.findall(r"^```(.*)$", text, re.M)
    assert len(fences) % 2 == 0, "a block has no end"
    # test_in_your_script.py applies the diffs of that page.
    diff = {"diff"} if page == "docs/in-your-script.md" else set()
    assert set(fences[::2]) <= {"", "text", "sh", "python"} | diff, "and the end of a block is bare"
    assert set(fences[1::2]) <= {""}


@pytest.mark.parametrize("page", pages_that(lambda block: not block.runs))
def test_examples_that_cannot_run_are_well_formed(page: str) -> None:
    for block in blocks(page, "sh", "python"):
        if block.runs:
            continue
        if block.language == "python":
            compile(block.text, page, "exec")
            continue
        parsed = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert parsed.returncode == 0, parsed.stderr
        for line in block.text.replace("\\\n", " ").splitlines():
            check_command(line.split(" #")[0].rstrip(" &"))


def check_command(line: str) -> None:
    """Each of our programs' commands and options, each target of make, each path must be there."""
    match line.split():
        case ["shade-load" | "shade-pack" as program, command, *rest]:
            usage = subprocess.run(
                [packed.program(program), command, "--help"], capture_output=True, text=True, check=False
            )
            assert usage.returncode == 0, f"{line}: {usage.stderr}"
            for option in re.findall(r"(?<!\S)(--[a-z-]+)", " ".join(rest)):
                assert option in usage.stdout, f"{line}: no option {option}"
        case ["make", target, *_]:
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{target}:", makefile, re.M), f"{line}: make has no {target}"
        case ["cargo", "install", *rest] if "--path" in rest:
            assert (ROOT / rest[rest.index("--path") + 1] / "Cargo.toml").is_file(), line
        case ["pip", "install", path] if not path.endswith(".whl"):
            assert (ROOT / path / "pyproject.toml").is_file(), line
        case _:
            pass


def heading_anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.usefixtures("reference_pages")
@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path) if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            assert anchor in heading_anchors(target.read_text(encoding="utf-8")), f"{page}: {link}"
