"""docs/kubernetes.yaml: Kubernetes takes it, and its commands do what it says, without a cluster."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import packed
import pytest
from shade_load import Loader

yaml = pytest.importorskip("yaml", reason="no PyYAML")
schemas = pytest.importorskip("kubernetes_validate", reason="no schemas of Kubernetes: pip install kubernetes-validate")

MANIFEST = Path(__file__).parents[2] / "docs/kubernetes.yaml"
DAEMONS, MEETING, TRAINING = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
DAEMON = DAEMONS["spec"]["template"]["spec"]
TRAINER = TRAINING["spec"]["template"]["spec"]
CONTAINERS = [*DAEMON["containers"], *TRAINER["initContainers"], *TRAINER["containers"]]
# Where the manifest has them.
DATASET, SOCKET, CACHE = "/data/photos.shade", "/run/shade/photos.sock", "60GiB"


def test_the_manifest_is_valid() -> None:
    for document in (DAEMONS, MEETING, TRAINING):
        schemas.validate(document, schemas.latest_version(), strict=True)
    broken = {**DAEMONS, "spec": {**DAEMONS["spec"], "updateStrategy": {"type": 7}}}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(broken, schemas.latest_version(), strict=True)


def test_all_pods_have_socket_dataset_and_user_alike() -> None:
    assert DAEMON["volumes"] == TRAINER["volumes"]
    for name in ("env", "volumeMounts"):
        assert all(container[name] == CONTAINERS[0][name] for container in CONTAINERS)
    assert {container["securityContext"]["runAsUser"] for container in CONTAINERS} == {0}
    assert CONTAINERS[0]["env"] == [{"name": "SHADE_SOCKET", "value": SOCKET}]
    mounted = {mount["mountPath"] for mount in CONTAINERS[0]["volumeMounts"]}
    assert mounted == {str(Path(SOCKET).parent), str(Path(DATASET).parent)}
    # The name that ranks meet at is the first pod's.
    assert f"--master-addr {TRAINING['metadata']['name']}-0.{MEETING['metadata']['name']} " in CONTAINERS[2]["args"][0]
    assert MEETING["spec"]["selector"] == TRAINING["spec"]["template"]["metadata"]["labels"]
    assert DATASET in CONTAINERS[0]["command"] and CONTAINERS[2]["args"][0].endswith(DATASET)


def test_its_commands_start_a_daemon_that_a_training_waits_for(
    png_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "photos.sock"
    programs = packed.program("shade-load").parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SHADE_SOCKET", str(socket))
    daemon, waits, _ = CONTAINERS
    probes = [daemon[f"{kind}Probe"]["exec"]["command"] for kind in ("startup", "readiness", "liveness")]

    def answers() -> list[int]:
        return [subprocess.run(probe, capture_output=True, check=False).returncode for probe in probes]

    assert answers() == [1, 1, 1]
    waiting = subprocess.Popen(waits["command"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    replaced: dict[str, Any] = {DATASET: png_dataset, CACHE: "100%"}
    serves = subprocess.Popen([replaced.get(word, word) for word in daemon["command"]])
    try:
        assert waiting.wait() == 0
        assert answers() == [0, 0, 0]
        with Loader(png_dataset, 8) as loader:
            assert loader.daemon_pid == serves.pid
            assert sum(1 for _ in loader) == len(loader)
        serves.send_signal(signal.SIGTERM)
        assert serves.wait() == 0
        assert not socket.exists()
    finally:
        for process in (waiting, serves):
            process.kill()
            process.wait()
