"""`python -m benches.dlio.whole COMMAND...`: runs a command, and ends when all that it started has ended.

A daemon stays for some seconds after its last rank, and a store that it reads cannot be unmounted."""

import subprocess
import sys

from benches.rivals.with_cpu_time import adopt_orphans, end_with_parent, wait_for_all


def main() -> int:
    """Returns the command's exit status."""
    end_with_parent()
    adopt_orphans()
    done = subprocess.run(sys.argv[1:], check=False, preexec_fn=end_with_parent)
    wait_for_all()
    return 0 if done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
