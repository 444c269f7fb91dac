"""What the processes of a training are told."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

DATALOADER = "DataLoader"
REDIS = "importance, Redis"
IMPORTANCE = "importance"
PERMUTATIONS = "permutations"
DEFAULTS = "defaults"
WAYS = (DATALOADER, REDIS, IMPORTANCE, PERMUTATIONS, DEFAULTS)
BATCH = 64


@dataclass(frozen=True)
class Task:
    """One training on several nodes."""

    way: str
    # The training data as the store shows it: an ImageFolder for the DataLoader, else packed.
    train: str
    # The packed validation data, beside the store.
    val: str
    side: int
    has_side: bool
    nodes: int
    # Ranks of a node.
    ranks: int
    epochs: int
    # Memory of each node's cache, as a share of the dataset, and bytes of all servers that each
    # node may fill. 0 is none.
    cache: float
    tier_bytes: int
    rep: float
    # Worker processes of each rank's DataLoader.
    workers: int
    seed: int
    # A folder for the ranks' figures.
    results: str

    def write(self, path: Path) -> None:
        """Writes it for `read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> Task:
        """The task in the file."""
        return cls(**json.loads(Path(path).read_text()))
