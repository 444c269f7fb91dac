"""Slurm on several hosts of one machine: a controller on the first, a node on each."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import finish

from studies.hosts import Hosts

PROGRAMS = ("munged", "sbatch", "slurmctld", "slurmd", "srun")
# Each node has as many, whatever this machine has.
CPUS = 4
# No control groups are used, and no other service of Slurm. A task is found by its parents.
SETTINGS = """\
ClusterName=shade
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Slurm:
    """A cluster whose nodes are the hosts."""

    def __init__(self, nodes: Hosts, work: Path) -> None:
        self.nodes = nodes
        self.environment = {"SLURM_CONF": str(work / "slurm.conf")}

    def run(self, *command: object, **environment: str) -> None:
        """Runs a command on the first host to its end, which must be good."""
        finish([self.nodes.start(0, command, **self.environment, **environment)])

    def asks(self, *command: object) -> str:
        """What a command on the first host prints."""
        return self.nodes.start(0, command, **self.environment).communicate()[0]


@contextmanager
def slurm(nodes: Hosts) -> Iterator[Slurm]:
    """Slurm on these hosts; the test is skipped where it is not installed."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"LEFT OUT: Slurm is not installed here: no {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        work = Path(folder)
        _configure(nodes, work)
        cluster = Slurm(nodes, work)
        munge = _munge(work)
        try:
            programs = [nodes.start(0, ["slurmctld", "-D"], **cluster.environment)]
            programs += [nodes.start(host, ["slurmd", "-D"], **cluster.environment) for host in range(len(nodes.hostnames))]
            while cluster.asks("sinfo", "--noheader", "--format=%T %D").strip() != f"idle {len(nodes.hostnames)}":
                for program in programs:
                    assert program.poll() is None, program.communicate()[0]
                time.sleep(0.2)
            yield cluster
            # Killed: a step that reports its end to a controller that is gone keeps the program of
            # its node for ever.
            for program in programs:
                program.kill()
                program.communicate()
        finally:
            # Where something failed, Slurm's own programs end with their hosts.
            munge.terminate()
            munge.wait()


def _configure(nodes: Hosts, work: Path) -> None:
    lines = [f"SlurmctldHost={nodes.hostnames[0]}({nodes.addresses[0]})", f"AuthInfo=socket={work}/munge.socket"]
    lines += [f"StateSaveLocation={work}", f"SlurmctldPidFile={work}/controller.pid"]
    lines += [f"SlurmdSpoolDir={work}/%n", f"SlurmdPidFile={work}/%n.pid"]
    for name, address in zip(nodes.hostnames, nodes.addresses, strict=True):
        lines.append(f"NodeName={name} NodeAddr={address} CPUs={CPUS} State=UNKNOWN")
        (work / name).mkdir()
    (work / "slurm.conf").write_text("\n".join([*lines, SETTINGS]))
    # The version is not looked for: there may be no control groups here.
    (work / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    # The socket of munge is for all users.
    work.chmod(0o711)


def _munge(work: Path) -> subprocess.Popen[bytes]:
    """By which Slurm's programs know each other."""
    key = work / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(bytes(range(128)))
    files = [f"--{name}-file={work}/munge.{name}" for name in ("key", "log", "pid", "seed")]
    munge = subprocess.Popen(["munged", "--foreground", f"--socket={work}/munge.socket", *files], stderr=subprocess.PIPE)
    while not (work / "munge.socket").exists():
        assert munge.poll() is None, munge.communicate()[1]
        time.sleep(0.01)
    return munge
