"""Writes the pages of docs/reference that follow from code: Python API, figures of `stats()`, the programs' --help.

    python setup/reference.py [--programs FOLDER]

`make docs` runs it. The pages are not committed.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "trainer-bridge/py/python/shade_load"
PAGES = ROOT / "docs/reference"
PROGRAMS = ("shade-pack", "shade-load")
COLUMNS = 100
MADE = "Made by `make docs`, from the code."
Function = ast.FunctionDef | ast.AsyncFunctionDef
# Modules of the package whose public classes and functions are for users, and what leads to each.
MODULES = {
    "__init__.py": ("shade_load", "`from shade_load import ...`"),
    "transforms.py": ("shade_load.transforms", "For `Loader(decode=[...])`."),
    "integrations/lightning.py": ("shade_load.integrations.lightning", "For Lightning."),
    "integrations/transformers.py": ("shade_load.integrations.transformers", "For Transformers' Trainer."),
    "integrations/accelerate.py": ("shade_load.integrations.accelerate", "For Accelerate."),
    "integrations/dlio.py": ("shade_load.integrations.dlio", "For DLIO, the engine of MLPerf Storage."),
}
COUNTS = ("core/src/figures/counts.rs Counts", "core/src/stats.rs CountStats")
RANK = ("core/src/figures/waits.rs RankStatus", "core/src/figures/waits.rs Waits")
# The chapters of the page of figures: title, where in `stats()`, and the structs of loader/ there.
STATS = (
    ("All", "", ("core/src/stats.rs Stats", "daemon/src/daemon/request.rs Figures")),
    ("This epoch", '["epoch"]', ("core/src/stats.rs EpochStats", "core/src/plan/list.rs PlanSummary", *COUNTS)),
    ("This job", '["total"]', ("core/src/stats.rs TotalStats", *COUNTS)),
    ("This rank", '["rank"]', RANK),
    ("Each job", '["jobs"][i]', ("core/src/stats.rs JobStatus", *COUNTS)),
    ("Each rank of a job", '["jobs"][i]["by_rank"][k]', RANK),
    ("Latency of reads", '["read_latency"]', ("core/src/records/latency.rs ReadLatency",)),
    ("The tier", '["tier"]', ("core/src/records/tier.rs TierStats",)),
)


def help_of(program: Path, *command: str) -> str:
    """What `--help` prints, for lines of fixed width."""
    environment = {**os.environ, "COLUMNS": str(COLUMNS)}
    shown = subprocess.run([program, *command, "--help"], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return "\n".join(line.rstrip() for line in shown.stdout.splitlines())


def cli_page(programs: dict[str, Path]) -> str:
    """Every program's and subcommand's help, in the order of the programs' lists."""
    parts = ["# Command line", MADE, "Exit codes: [exit-codes.md](exit-codes.md)."]
    for name, program in programs.items():
        overview = help_of(program)
        listed = overview.partition("\nCommands:\n")[2].partition("\n\n")[0]
        commands = [command for command in re.findall(r"^  ([a-z-]+)", listed, re.M) if command != "help"]
        parts += [f"## {name}", f"```text\n{overview}\n```"]
        for command in commands:
            parts += [f"### {name} {command}", f"```text\n{help_of(program, command)}\n```"]
    return "\n\n".join(parts) + "\n"


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def exported(module: ast.Module) -> list[str]:
    """The names in `__all__`, or the public classes and functions that the module defines."""
    names: list[str] = []
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names += ast.literal_eval(node.value)
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "__all__":
            # `__all__ += other.__all__`
            names += exported(parsed(PACKAGE / f"{ast.unparse(node.value).partition('.')[0]}.py"))
    return sorted(names) or [node.name for node in definitions(module) if not node.name.startswith("_")]


def definitions(scope: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | Function]:
    return (node for node in scope.body if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))


def definition(module: ast.Module, name: str) -> ast.ClassDef | Function | ast.Assign:
    """Where the package defines what a module gives by this name."""
    for node in definitions(module):
        if node.name == name:
            return node
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node
    for node in ast.walk(module):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        file, names = PACKAGE / f"{str(node.module).replace('.', '/')}.py", [alias.name for alias in node.names]
        if name in names or (names == ["*"] and name in exported(parsed(file))):
            return definition(parsed(file if file.is_file() else file.with_suffix(".pyi")), name)
    raise LookupError(f"{name} is defined nowhere")


def signature(function: Function, name: str) -> str:
    """A call as the source declares it, on several lines where one is too short."""
    one_line = f"{name}({ast.unparse(without_self(function.args))})"
    result = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__init__" else ""
    if len(one_line + result) <= COLUMNS:
        return one_line + result
    return name + "(\n" + "".join(f"    {argument},\n" for argument in arguments(function.args)) + f"){result}"


def without_self(given: ast.arguments) -> ast.arguments:
    listed = [argument for argument in given.args if argument.arg not in ("self", "cls")]
    hidden = given.kwarg if given.kwarg is None or ast.unparse(given.kwarg.annotation or ast.Name("")) != "Never" else None
    return ast.arguments(**{**dict(ast.iter_fields(given)), "args": listed, "kwarg": hidden})


def arguments(given: ast.arguments) -> list[str]:
    """Each argument of its own: `name: type = default`."""
    shown = without_self(given)
    count = len(shown.args) - len(shown.defaults)
    plain = [with_default(argument, shown.defaults[at - count] if at >= count else None) for at, argument in enumerate(shown.args)]
    keywords = [with_default(*pair) for pair in zip(shown.kwonlyargs, shown.kw_defaults, strict=True)]
    several = f"*{ast.unparse(shown.vararg)}" if shown.vararg else "*"
    rest = [f"**{ast.unparse(shown.kwarg)}"] if shown.kwarg else []
    return plain + ([several] if keywords or shown.vararg else []) + keywords + rest


def with_default(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default is not None else "")


def class_signature(node: ast.ClassDef) -> str:
    """How an object is made: by `__init__`, or with the fields of a dataclass."""
    for member in definitions(node):
        # What takes objects of the native module is made by a Loader, not by a user.
        if isinstance(member, ast.FunctionDef) and member.name == "__init__" and "_native." not in ast.unparse(member.args):
            return signature(member, node.name)
    if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return f"class {node.name}({', '.join(map(ast.unparse, node.bases))})" if node.bases else f"class {node.name}"
    fields = [ast.unparse(member) for member in node.body if isinstance(member, ast.AnnAssign)]
    one_line = f"{node.name}({', '.join(fields)})"
    return one_line if len(one_line) <= COLUMNS else f"{node.name}(\n" + "".join(f"    {field},\n" for field in fields) + ")"


def description(text: str) -> str:
    """A docstring as Markdown: its arguments as a table, its examples as blocks."""
    prose, _, listed = text.partition("\nArgs:\n")
    listed, _, rest = listed.partition("\n\n")
    pieces = [piece(paragraph) for paragraph in re.split(r"\n\n+", prose.strip())]
    if listed:
        entries = re.split(r"\n(?=\S)", textwrap.dedent(listed))
        rows = [" ".join(entry.split()).partition(": ") for entry in entries]
        table = [f"| `{name}` | {cell} |" for name, _, text in rows for cell in [text.replace("|", "\\|")]]
        pieces.append("\n".join(["| argument | meaning |", "|---|---|", *table]))
    if rest.strip():
        pieces += [piece(paragraph) for paragraph in re.split(r"\n\n+", textwrap.dedent(rest).strip())]
    return "\n\n".join(pieces)


def piece(paragraph: str) -> str:
    lines = paragraph.splitlines()
    if all(line.startswith("    ") for line in lines):
        return f"```text\n{textwrap.dedent(paragraph)}\n```"
    if any(line.startswith((" ", "- ", "Returns:", "Raises:")) for line in lines):
        return f"```text\n{paragraph}\n```"
    return textwrap.fill(" ".join(lines), COLUMNS, break_long_words=False, break_on_hyphens=False)


def described(node: ast.ClassDef | Function, title: str) -> list[str]:
    """A class with its public members, or a function."""
    call = class_signature(node) if isinstance(node, ast.ClassDef) else signature(node, node.name)
    parts = [f"### {title}", f"```text\n{call}\n```", description(ast.get_docstring(node) or "")]
    if not isinstance(node, ast.ClassDef):
        return parts
    for member in definitions(node):
        text = ast.get_docstring(member)
        if member.name.startswith("_") or not text or isinstance(member, ast.ClassDef):
            continue
        marks = [ast.unparse(decorator) for decorator in member.decorator_list]
        is_value = any(mark.endswith("property") for mark in marks)
        result = f": {ast.unparse(member.returns)}" if member.returns else ""
        shown = f"{member.name}{result}" if is_value else signature(member, member.name)
        parts += [f"#### {title}.{member.name}", f"```text\n{shown}\n```", description(text)]
    return parts


def meaning_of(module: ast.Module, value: ast.Assign) -> str | None:
    """The docstring that follows a value. Those without, such as names of types, are not for users."""
    following = module.body[module.body.index(value) + 1]
    is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    return str(following.value.value) if is_text else None


def python_page() -> str:
    """The public classes and functions, as sources and docstrings have them."""
    introduction = "Chapters with examples: [loader.md](../loader.md). Types are in the package (`py.typed`)."
    parts = ["# Python API", MADE, introduction]
    for file, (name, text) in MODULES.items():
        module = parsed(PACKAGE / file)
        parts += [f"## {name}", text]
        for exported_name in exported(module):
            if exported_name.startswith("__"):
                continue
            node = definition(module, exported_name)
            if not isinstance(node, ast.Assign):
                parts += described(node, exported_name)
            elif meaning := meaning_of(module, node):
                parts += [f"### {exported_name}", description(meaning)]
    return "\n\n".join(part for part in parts if part) + "\n"


def fields_of(place: str) -> list[tuple[str, str]]:
    """The keys that a Rust struct has in JSON, each with its documentation. `place`: file and struct."""
    file, _, struct = place.partition(" ")
    source = (ROOT / "loader" / file).read_text(encoding="utf-8")
    body = re.search(rf"struct {struct}(?:<'a>)? \{{\n(.*?)^\}}", source, re.S | re.M)
    assert body, f"no struct {struct} in {file}"
    found = []
    for comment, attributes, name in re.findall(
        r"((?:^    ///[^\n]*\n)*)((?:^    #\[[^\n]*\n)*)^    (?:pub(?:\(\w+\))? )?(\w+):", body[1], re.M
    ):
        if "flatten" not in attributes:
            found.append((name, meaning(comment)))
    return found


def meaning(comment: str) -> str:
    """A Rust comment as a cell: `None` is null in JSON, links are words."""
    text = " ".join(line.strip().removeprefix("///").strip() for line in comment.splitlines())
    text = re.sub(r"\[`([\w:]+)`\](?:\([^)]*\))?", r"`\1`", text)
    # A value of an enum is its name in lower case.
    text = re.sub(r"`\w+::(\w+)`", lambda value: f"`{value[1].lower()}`", text)
    return text.replace("`None`", "null").replace("|", "\\|")


def stats_page() -> str:
    """The keys of `Loader.stats()`, from the structs that the daemon serializes."""
    parts = [
        "# Statistics and metrics",
        MADE,
        "`loader.stats()` gives a dict with these keys. `loader.metrics()` gives flat names for a logger:\n"
        "[why-it-waits.md](../why-it-waits.md#metrics). Times end with `_ns` (nanoseconds), `_us`\n"
        "(microseconds) or `_seconds`, sizes with `bytes`; shares are from 0 to 1.",
    ]
    for title, key, places in STATS:
        rows = [row for place in places for row in fields_of(place)]
        if not key:
            rows.append(("stall_seconds", "Time that this process has waited for batches."))
            rows.append(("successors", "Daemons that died and were replaced. All else counts since the last one began."))
        table = "\n".join(["| key | meaning |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)])
        parts += [f"## {title}", f'`stats(){key}`:', table] if key else [f"## {title}", table]
    return "\n\n".join(parts) + "\n"


def pages(programs: dict[str, Path]) -> dict[Path, str]:
    made = {"cli.md": cli_page(programs), "python.md": python_page(), "stats.md": stats_page()}
    return {PAGES / name: text for name, text in made.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, help="folder of shade-pack and shade-load; default: PATH")
    where = parser.parse_args().programs
    found = {name: str(where / name) if where else shutil.which(name) for name in PROGRAMS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        parser.error(f"not on PATH: {', '.join(missing)}; give --programs")
    for page, text in pages({name: Path(path) for name, path in found.items() if path}).items():
        # At once: tests read these pages while others make them.
        written = page.with_suffix(f".{os.getpid()}")
        written.write_text(text, encoding="utf-8")
        written.replace(page)


if __name__ == "__main__":
    main()
