"""What a training process is told."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

# The runs: what users do, shade as it is, and shade with the sampler that reads least.
DATALOADER, PERMUTATIONS, ECHO = "DataLoader", "shade, permutations", "shade, echo"
RUNS = (DATALOADER, PERMUTATIONS, ECHO)


@dataclass(frozen=True)
class Task:
    """One training."""

    run: str
    # The training data as the store shows it: an ImageFolder for the DataLoader, else packed.
    train: str
    # The packed validation data, beside the store.
    val: str
    # Bytes of all the ImageFolder's files.
    file_bytes: int
    side: int
    has_side: bool
    epochs: int
    cache: str
    workers: int
    seed: int
    # Where the store is simulated: how slow it is.
    simulated: bool
    delay_us: int
    at_once: int
    # Where the figures go.
    result: str

    def write(self, path: Path) -> None:
        """Writes it for `read`."""
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Task":
        """The task in the file."""
        return cls(**json.loads(path.read_text()))
