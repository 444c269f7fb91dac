"""The loaders deliver whole epochs of decoded batches with a contrastive recipe: crop, flip, jitter,
grey, blur, solarize.

All of it is `decode` with images of the kind "augmented", whose rows are those of the systems that
do every step."""

import argparse
from pathlib import Path

from benches.rivals import decode, report
from benches.rivals.kinds import KINDS
from benches.rivals.table import AUGMENT

KIND_NAME = "augmented"
NAMES = list(AUGMENT)
FILES = KINDS[KIND_NAME].files


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """As in `decode`."""
    arguments.kind = [KIND_NAME]
    return decode.compare(arguments, scratch)


details = decode.details
