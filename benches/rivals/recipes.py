"""The loaders deliver whole epochs of the recipes of docs/recipes.md: views of normalized floats.

All of it is `decode` with images of the kinds that have views. Before anything is timed, each
loader must show that its images are distributed as those of torchvision's and timm's transforms."""

import argparse
from pathlib import Path

from benches.rivals import decode, report
from benches.rivals.kinds import KINDS, RECIPE_FILES
from benches.rivals.table import RECIPES

KIND_NAMES = [name for name, kind in KINDS.items() if kind.views]
NAMES = list(RECIPES)
FILES = RECIPE_FILES
# What `--quick` makes, for one round.
QUICK_FILES = 128


def compare(arguments: argparse.Namespace, scratch: Path) -> report.Compared:
    """As in `decode`."""
    arguments.kind = arguments.kind or KIND_NAMES
    if arguments.quick:
        arguments.files, arguments.rounds = QUICK_FILES, 1
    return decode.compare(arguments, scratch)


details = decode.details
