"""`python -m benches.rivals.with_cpu_time COMMAND...`: runs a command and adds to its JSON the CPU
time that it took.

This counts the command and all that it started. What outlives the command, as shade's daemon does
for some seconds, is waited for: so the figure is whole, and nothing of a run is left when the next
one begins."""

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    end_with_parent()
    adopt_orphans()
    done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, check=False, preexec_fn=end_with_parent)
    if done.returncode != 0:
        return 1
    wait_for_all()
    result = json.loads(done.stdout.splitlines()[-1])
    before = result.pop("cpu_seconds_before")
    print(json.dumps({**result, "cpu_seconds": _used(resource.RUSAGE_CHILDREN) - before}))
    return 0


def cpu_seconds() -> float:
    """CPU time so far of this process and of the children that it has waited for."""
    return _used(resource.RUSAGE_SELF) + _used(resource.RUSAGE_CHILDREN)


def _used(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def end_with_parent() -> None:
    """This process is killed when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if LIBC.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def adopt_orphans() -> None:
    """What is left of processes below this one become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def wait_for_all() -> None:
    """Waits until this process has no children."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(main())
