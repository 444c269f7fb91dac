"""The launchers of docs/packing-on-many-machines.md: each makes the bytes of one `create`."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import packed
import pytest
from hosts import hosts
from slurm import slurm

PAGE = Path(__file__).parents[2] / "docs/packing-on-many-machines.md"
# Where the page has its data.
SOURCE, OUT = "/data/train", "/data/train.shade"


def block(heading: str) -> str:
    """The first fenced block below a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1]
    return re.search(r"^```\w*\n(.*?)^```$", section, re.S | re.M).group(1)


def environment(**more: str) -> dict[str, str]:
    programs = packed.program("shade-pack").parent
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **more}


def pack(*arguments: object, check: bool = True) -> int:
    words = [packed.program("shade-pack"), *map(str, arguments), "-q"]
    return subprocess.run(words, check=check, stdout=subprocess.DEVNULL).returncode


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folders(tmp_path: Path, png_folder: Path) -> tuple[Path, Path, dict[str, bytes]]:
    """A source, a destination, and what is to be there in the end: several shards."""
    source, out, calm = tmp_path / "train", tmp_path / "train.shade", tmp_path / "calm"
    source.symlink_to(png_folder)
    pack("create", source, calm, "--shard-size", "50kB")
    expected = content(calm)
    assert len(expected) > 6, sorted(expected)
    return source, out, expected


def run_parts(script: str, variable: str, source: Path, out: Path) -> None:
    """What a scheduler does with a script for one of 512 parts. The last one is missing at first."""
    script = script.replace(OUT, str(out)).replace(SOURCE, str(source)).replace("512", "4")
    pack("plan", source, out, "--shard-size", "50kB")
    for part in (0, 1, 2):
        subprocess.run(["bash", "-eu", "-c", script], env=environment(**{variable: str(part)}), check=True)
    assert pack("finish", out, check=False) == 5, "a part is missing"
    subprocess.run(["bash", "-eu", "-c", script], env=environment(**{variable: "3"}), check=True)
    pack("finish", out)


def test_slurm_packs_all_parts(folders: tuple, tmp_path: Path) -> None:
    source, out, _ = folders
    script = block("Slurm").replace(OUT, str(out)).replace(SOURCE, str(source))
    # Four parts for this machine.
    for many, few in (("--array=0-511", "--array=0-3"), ("/512", "/4"), ("--cpus-per-task=8", "--cpus-per-task=1")):
        assert many in script
        script = script.replace(many, few)
    with hosts(2) as nodes, slurm(nodes) as cluster:
        cluster.run("sh", "-euc", f"cd {tmp_path}\n{script}", PATH=environment()["PATH"])
        while cluster.asks("squeue", "--noheader").strip():
            time.sleep(0.2)
    logs = {path.name: path.read_text() for path in tmp_path.glob("slurm-*.out")}
    assert len(logs) == 6, logs
    calm = tmp_path / "one-run"
    pack("create", source, calm)
    assert out.exists(), logs
    assert content(out) == content(calm)


def test_the_kubernetes_job_is_valid(folders: tuple) -> None:
    yaml = pytest.importorskip("yaml", reason="no PyYAML")
    schemas = pytest.importorskip("kubernetes_validate", reason="no schemas of Kubernetes: pip install kubernetes-validate")
    manifest = yaml.safe_load(block("Kubernetes"))
    schemas.validate(manifest, schemas.latest_version(), strict=True)
    broken = {**manifest, "spec": {**manifest["spec"], "completions": "many"}}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(broken, schemas.latest_version(), strict=True)
    job = manifest["spec"]
    (container,) = job["template"]["spec"]["containers"]
    (command,) = container["args"]
    assert container["command"] == ["/bin/sh", "-c"] and f"$JOB_COMPLETION_INDEX/{job['completions']}\"" in command
    source, out, expected = folders
    run_parts(command, "JOB_COMPLETION_INDEX", source, out)
    assert content(out) == expected


def test_ray_packs_all_parts(folders: tuple, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    source, out, _ = folders
    script = block("Ray").replace('"photos/train"', repr(str(source))).replace('"ray.shade"', repr(str(out)))
    # Nothing is reported, and no dashboard is needed.
    quiet = environment(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_UV_RUN_RUNTIME_ENV="0")
    done = subprocess.run([sys.executable, "-c", script], env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    calm = tmp_path / "one-run"
    pack("create", source, calm)
    assert content(out) == content(calm)


def test_the_spark_script_is_well_formed() -> None:
    script = block("Spark")
    assert "foreach(pack)" in script
    compile(script, str(PAGE), "exec")
