"""The ranks of one node as torchrun starts them, forked from one process that has imported torch.

An import of torch takes two seconds of CPU, and torchrun needs one for itself and one for each rank. This is for tests
of what ranks do, where it does not matter who starts them.

Arguments: number of nodes, this node, ranks of a node, address of the first node, its port, a script and its arguments.
"""

import os
import runpy
import signal
import sys
from contextlib import suppress

import shade_load  # noqa: F401  (for the ranks)
import torch.distributed
import torch.nn.parallel


def run(environment: dict[str, str], script: list[str]) -> None:
    """Runs the script as one rank, and ends this process."""
    os.environ.update(environment)
    sys.argv = script
    status = 0
    try:
        runpy.run_path(script[0], run_name="__main__")
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> int:
    """Returns 0 if all ranks ended well. When one did not, the others are killed, as torchrun does it."""
    nodes, node, ranks = map(int, sys.argv[1:4])
    address, port, *script = sys.argv[4:]
    world = {"MASTER_ADDR": address, "MASTER_PORT": port, "WORLD_SIZE": str(nodes * ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    children = set()
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            run({**world, "RANK": str(node * ranks + rank), "LOCAL_RANK": str(rank), "GROUP_RANK": str(node)}, script)
        children.add(child)
    has_failed = False
    while children:
        child, status = os.wait()
        children.discard(child)
        if status != 0 and not has_failed:
            has_failed = True
            for other in children:
                with suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
