"""`python -m benches.seeds.nodes TASK`: the nodes of a training, as a process that the slow store runs."""

from __future__ import annotations

import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benches.seeds import redis
from benches.seeds.task import Task
from studies.hosts import NoHosts, hosts
from studies.slow_store import INTERRUPTED

TRAINING = "benches.seeds.training"


def run(told: str) -> None:
    """Makes the hosts and trains on all of them.

    Raises:
        OSError: A node's part of the training failed; has what it said.
    """
    task = Task.read(told)
    with ExitStack() as stack:
        made = stack.enter_context(hosts(task.nodes))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shade-seeds-")))
        servers = [stack.enter_context(redis.cluster(made, folder))] if task.tier_bytes else []
        nodes = [made.torchrun(node, task.ranks, "-m", TRAINING, told, *servers) for node in range(task.nodes)]
        outputs = [node.communicate()[0] for node in nodes]
    for node, (process, output) in enumerate(zip(nodes, outputs, strict=True)):
        if process.returncode != 0:
            raise OSError(f"node {node} of {task.nodes} ended with status {process.returncode}:\n{output}")


def main() -> int:
    """Returns the exit status: 0 done, 1 failed, 130 interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(sys.argv[1])
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, NoHosts) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
