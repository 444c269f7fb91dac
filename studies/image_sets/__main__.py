"""`python -m studies.image_sets NAME OUT`: writes an image set as an ImageFolder."""

import argparse
import sys
from pathlib import Path

from studies.image_sets import SETS, NotAvailable, load


def main() -> int:
    """Returns the exit status: 0 written, 1 failed."""
    parser = argparse.ArgumentParser(prog="python -m studies.image_sets", description=__doc__)
    parser.add_argument("name", choices=SETS, help="which set")
    parser.add_argument("out", type=Path, help="the folder to write, with train/ and val/; it must not exist yet")
    parser.add_argument("--source", type=Path, help="where Imagenette's own train/ and val/ are")
    parser.add_argument("--label-noise", type=float, default=0.0, help="share of training labels to replace")
    parser.add_argument("--imbalance", type=float, default=1.0, help="largest class over the smallest one")
    parser.add_argument("--seed", type=int, default=0, help="of the replaced labels (default 0)")
    arguments = parser.parse_args()
    if arguments.out.exists():
        parser.error(f"{arguments.out} exists")
    try:
        images = load(arguments.name, arguments.source).with_imbalance(arguments.imbalance)
        images.with_label_noise(arguments.label_noise, arguments.seed).write(arguments.out)
    except (NotAvailable, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"written: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
