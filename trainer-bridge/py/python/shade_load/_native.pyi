"""The native module: a session with the daemon, its batches, and DLPack views of their columns."""

from collections.abc import Sequence
from typing import Any, Final, TypedDict, final

__version__: Final[str]
DEBUG_BUILD: Final[bool]
# The names of what there is to choose from.
SAMPLERS: Final[tuple[str, ...]]
ORDERS: Final[tuple[str, ...]]
POLICIES: Final[tuple[str, ...]]
# Sampler, policy and order of each preset.
PRESETS: Final[dict[str, tuple[str, str, str]]]
# The value of the setting "linger" of a daemon that was started by hand.
LINGERS_FOR_EVER: Final[str]

def fill_floats(source: Any, target: Any, tables: bytes, threads: int) -> None:
    """Fills a tensor of floats, channels last, from one of bytes: value `tables[256 * colour + byte]` for each."""

class ShadeError(RuntimeError):
    """Anything that shade reports; the base of the others."""

class DaemonGone(ShadeError):
    """The daemon ended or was killed; the text names its pid and how it ended."""

class RankTaken(ShadeError):
    """Another training has this job's rank, or the job with other arguments."""

class RecordError(ShadeError):
    """An epoch ended with an error: a record is bad and on_error does not allow it, more than bad_max
    are bad, a batch has no row left, or the store cannot be read. Or a sample's fields, or a record of
    an `ImageFolder`, could not be read. The text names shard, offset and path."""

class LoaderTimeout(ShadeError):
    """Nothing came for `timeout` seconds; the text says what was awaited."""

class Images(TypedDict):
    """How decoded images become rows of one size, or, with the framing "none", of their own. What the framing does not use
    is ignored."""

    height: int
    width: int
    # "cover", "stretch", "center", "random", "random_resized" or "none".
    framing: str
    # Length of the shorter side that "center" and "random" resize to first; 0: as it is.
    short: int
    padding: int
    scale: tuple[float, float]
    ratio: tuple[float, float]
    flip: float
    channels_last: bool
    exact: bool

class Job(TypedDict):
    """What must be equal in all ranks of a job."""

    sampler: str
    order: str
    seed: int
    rep: float
    hit_cap: float
    cover: int
    explore: float
    pace: bool
    draw_ahead: bool
    batch_size: int
    world_size: int
    tail: str
    # None for raw records.
    images: Images | None
    on_error: str
    bad_max: float
    ring_bytes: int

class Daemon(TypedDict):
    """Where the daemon listens, and how to start one where none does."""

    socket: str | None
    binary: str
    arguments: list[str]
    # What a daemon that runs is compared with.
    settings: list[tuple[str, str]]
    timeout_seconds: float

@final
class Session:
    """One rank's session with the daemon."""

    @staticmethod
    def connect(dataset: str, job: str, rank: int, spec: Job, daemon: Daemon) -> Session: ...
    @property
    def daemon_pid(self) -> int: ...
    # How the daemon runs. What means the same as what was asked for is in its words.
    @property
    def settings(self) -> list[tuple[str, str]]: ...
    @property
    def samples(self) -> int: ...
    @property
    def batches_per_epoch(self) -> int: ...
    @property
    def content_id(self) -> str: ...
    @property
    def stall_seconds(self) -> float: ...
    # Address and length of the memory that batches lie in.
    @property
    def payload(self) -> tuple[int, int]: ...
    # Batches in hand that lie in the ring; copies are not among them.
    @property
    def held(self) -> int: ...
    @property
    def heartbeat_age(self) -> float | None: ...
    def fields(self, buffered: bool) -> Fields: ...
    def check_open(self) -> None: ...
    def start_epoch(self, epoch: int, first_batch: int) -> None: ...
    def next(self, timeout_seconds: float) -> Batch | None: ...
    def report(self, batch: Batch, losses: Sequence[float] | Any) -> None: ...
    def report_validation(self, score: float) -> None: ...
    def stats(self) -> str: ...
    def save_state(self) -> bytes: ...
    def load_state(self, state: bytes) -> None: ...
    def close(self) -> None: ...

@final
class Batch:
    """A delivered batch. Its slot in the ring, if it is no copy, is free once this, its views and their tensors are gone."""

    def __len__(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def raw(self) -> bool: ...
    @property
    def ragged(self) -> bool: ...
    @property
    def channels_last(self) -> bool: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def substituted(self) -> int: ...
    def ids(self) -> View: ...
    def labels(self) -> View: ...
    def weights(self) -> View: ...
    def flags(self) -> View: ...
    def images(self) -> View: ...
    def image(self, row: int) -> View: ...
    def heights(self) -> View: ...
    def widths(self) -> View: ...
    def record(self, row: int) -> View: ...
    def memoryviews(self) -> list[memoryview]: ...

@final
class Fields:
    """Reads samples' extra fields from the dataset itself. Opens nothing before it is asked."""

    def read(self, batch: Batch) -> list[dict[str, Any]]: ...
    def shard_of(self, sample: int) -> str: ...

@final
class RecordReader:
    """Reads the records of a packed dataset, and says what its index knows."""

    @staticmethod
    def open(folder: str, content_id: str | None, buffered: bool) -> RecordReader: ...
    def renewed(self) -> RecordReader: ...
    def __len__(self) -> int: ...
    @property
    def content_id(self) -> str: ...
    def classes(self) -> list[str]: ...
    def sample(self, sample: int) -> tuple[str, int]: ...
    def labels(self) -> list[int]: ...
    def read(self, samples: list[int]) -> list[bytes]: ...
    def fault(self, sample: int, text: str) -> RecordError: ...

@final
class View:
    """One column of a batch in shared memory: no copy, importable by anything that speaks DLPack."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def tolist(self) -> list[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
