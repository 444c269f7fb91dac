"""The loaders deliver whole epochs of decoded batches with two recipes after crop and flip: a jitter
of brightness, contrast and saturation, and a contrastive one with hue, grey, blur and solarize.

All of it is `decode` with images of the kinds that augment, whose rows are those of the systems that
do every step."""

import argparse
from pathlib import Path

from benches.rivals import decode, report
from benches.rivals.kinds import KINDS
from benches.rivals.table import AUGMENT

KIND_NAMES = [name for name, kind in KINDS.items() if kind.augments and not kind.views]
NAMES = list(AUGMENT)
FILES = KINDS["contrastive"].files


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """As in `decode`."""
    arguments.kind = arguments.kind or KIND_NAMES
    return decode.compare(arguments, scratch)


details = decode.details
