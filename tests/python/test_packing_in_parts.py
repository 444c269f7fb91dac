"""The launchers of docs/packing-on-many-machines.md: each makes the bytes of one `create`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import packed
import pytest

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


def test_the_task_of_a_slurm_array_is_a_part(folders: tuple, tmp_path: Path) -> None:
    source, out, expected = folders
    script = block("Slurm")
    task = re.search(r"<<'END'\n(.*?)^END$", script, re.S | re.M).group(1)
    # The array's indices are the parts that the task names.
    count = re.search(r"--part \$SLURM_ARRAY_TASK_ID/(\d+)", task).group(1)
    assert f"#SBATCH --array=0-{int(count) - 1}\n" in task
    # srun starts its command in the job; here there is none.
    srun = tmp_path / "bin/srun"
    srun.parent.mkdir()
    srun.write_text('#!/bin/sh\nexec "$@"\n', encoding="utf-8")
    srun.chmod(0o755)
    run_parts(f"export PATH={srun.parent}:$PATH\n{task}", "SLURM_ARRAY_TASK_ID", source, out)
    assert content(out) == expected


def test_the_script_submits_plan_parts_and_finish_in_this_order(tmp_path: Path) -> None:
    # An sbatch that writes down what it is asked, and answers with a job's number.
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nwc -l < {tmp_path}/asked\n', encoding="utf-8")
    sbatch.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-eu", "-c", block("Slurm")], cwd=tmp_path, env={**os.environ, **path}, check=True)
    plan, parts, finish = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert "shade-pack plan" in plan and "--dependency" not in plan
    assert "--dependency=afterok:1 part.sbatch" in parts
    assert "--dependency=afterok:2 " in finish and "shade-pack finish" in finish


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
