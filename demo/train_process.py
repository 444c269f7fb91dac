"""`python -m demo.train_process TASK`: one training, as a process that the slow store runs."""

import json
import os
import signal
import sys
import warnings
from pathlib import Path

from shade_load import ShadeError

from demo import output
from demo.task import Task
from demo.training import train
from studies.slow_store import INTERRUPTED


def main() -> int:
    """Returns the exit status: 0 done, 1 failed, 130 interrupted."""
    signal.signal(signal.SIGTERM, _end)
    # Workers that wait for a store need no cores.
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    os.environ.setdefault("SHADE_LOG", "warn")
    task = Task.read(Path(sys.argv[1]))
    try:
        result = train(task, output.print_epoch)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (OSError, ShadeError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    Path(task.result).write_text(json.dumps(result))
    return 0


def _end(*_: object) -> None:
    """Ends as Ctrl-C does, once: what is cleaned up is not interrupted again."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
