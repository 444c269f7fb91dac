"""The native module: a session with the daemon, its batches, and DLPack views of their columns."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict, final

__version__: Final[str]
DEBUG_BUILD: Final[bool]
# Version of the messages between Loader and daemon.
PROTOCOL: Final[int]
# The names of each choice.
SAMPLERS: Final[tuple[str, ...]]
ORDERS: Final[tuple[str, ...]]
POLICIES: Final[tuple[str, ...]]
# The policy and the cache of each preset; None for "auto".
PRESETS: Final[dict[str, tuple[str, str | None]]]
# The setting "linger" of a daemon that was started by hand.
LINGERS_FOR_EVER: Final[str]
# The document of a job without arguments.
DEFAULTS: Final[str]

def strata_for(ranks_per_node: int, nodes: int, samples: int) -> int:
    """The number of strata of a plan for this number of nodes."""

def dataset_folder(address: str) -> Path:
    """The folder of the dataset at an address such as s3://bucket/prefix.

    FileNotFoundError if none that is packed lies there.
    """

def dataset_content(folder: str) -> tuple[int, str]:
    """Samples of the dataset in a folder, and the identity of its content in hexadecimal digits."""

def held(folder: str, socket: str | None, strata: int) -> tuple[int, bytes]:
    """How much of which strata a running daemon has cached, and their number; 0: those of its last training."""

def seats_for(samples: int, strata: int, node_of: list[int], held: list[bytes]) -> bytes:
    """The stratum of each seat by which nodes keep what they hold; b"" if seat q has stratum q."""

def field_kind(text: str) -> str:
    """What an extra field is, as the job's document says it."""

def field_row(kind: str) -> tuple[str, list[int]] | None:
    """Type and shape of a row of numbers, if each sample has as many rows as it likes."""

def field_content(name: str, kind: str, bytes: bytes) -> bytes:
    """What a batch has of the extra field `name` with these bytes."""

def daemon_settings(given: str) -> str:
    """These settings of a daemon, a JSON object, with each value as the daemon has it."""

def pools_scores(document: str) -> bool:
    """Whether the nodes of this job pool their scores before each epoch."""

def drawn_whole(document: str) -> str | None:
    """Why the plan of this job has one stratum only; None if it may have several."""

def job_document(arguments: str, dataset: str | None = None) -> str:
    """The document of a job with these arguments on a dataset, a JSON object of them, or why there is none."""

def check_field(name: str, value: object) -> None:
    """Raises TypeError or ValueError for an impossible value of a field of a job or its plan."""

def weight_table(values: Sequence[float]) -> tuple[bytes, int]:
    """The bytes of the table with these weights, one for each sample, and their digest."""

def subset(ids: Sequence[int]) -> tuple[bytes, int]:
    """The bytes of the subset with these samples, in any order, and its digest."""

def fill_floats(
    source: Any, target: Any, mean: tuple[float, ...], std: tuple[float, ...], threads: int
) -> None:
    """Fills a tensor of floats with `(x / 255 - mean) / std` of each byte, in the same layout."""

class ShadeError(RuntimeError):
    """Anything that shade reports; the base of the others."""

class DaemonGone(ShadeError):
    """The daemon ended or was killed; the text names its pid and how it ended."""

class RankTaken(ShadeError):
    """Another training has this job's rank, or the job with other arguments."""

class RecordError(ShadeError):
    """An epoch ended with an error: a record is bad and on_error does not allow it, more than bad_max
    are bad, a batch has no row left, or the store cannot be read. Or a sample's fields, or a record
    of
    an `ImageFolder`, could not be read. The text names shard, offset and path."""

class AnotherStart(ShadeError):
    """An epoch was started while this thread waited: the batches are those of another iterator."""

class LoaderTimeout(ShadeError):
    """Nothing came for `timeout` seconds; the text says what was awaited."""

class Daemon(TypedDict):
    """The daemon's address, and how to start one if none listens."""

    socket: str | None
    binary: str
    # The requested settings, a JSON object, which a running daemon is compared with.
    settings: str
    timeout_seconds: float
    # Whether the next free name will do where another training has the job's.
    or_free_name: bool
    survive: bool
    deaths_max: int

@final
class Session:
    """One rank's session with the daemon."""

    @staticmethod
    def connect(
        dataset: str,
        job: str,
        rank: int,
        document: str,
        daemon: Daemon,
        tables: tuple[bytes | None, bytes | None] = (None, None),
    ) -> Session:
        """Attaches to a daemon. `document` is the job's, as `job_document` makes it.
        `tables` are that of the sampler "weighted", as `weight_table` makes it, and the samples that the
        job delivers, as `subset` makes them."""

    # The job's name: the one that was asked for, or the free one that the daemon found.
    @property
    def job(self) -> str: ...
    @property
    def daemon_pid(self) -> int: ...
    # The daemon's settings, a JSON object. Those that mean the same as the requested ones are spelled alike.
    @property
    def settings(self) -> str: ...
    @property
    def samples(self) -> int: ...
    @property
    def batches_per_epoch(self) -> int: ...
    @property
    def content_id(self) -> str: ...
    # Samples, classes and content id of the dataset as the daemon serves it.
    @property
    def content(self) -> tuple[int, int, str]: ...
    # More than `samples` if the dataset was added to since the daemon opened it.
    @property
    def samples_present(self) -> int: ...
    @property
    def stall_seconds(self) -> float: ...
    # Address and length of the batches' memory.
    @property
    def payload(self) -> tuple[int, int]: ...
    @property
    def successors(self) -> int: ...
    def let_go_of_former_payloads(self) -> None: ...
    # Kept batches that are in the ring, without copies.
    @property
    def held(self) -> int: ...
    @property
    def heartbeat_age(self) -> float | None: ...
    def fields(self, buffered: bool) -> Fields: ...
    def check_open(self) -> None: ...
    def start_epoch(self, epoch: int, first_batch: int) -> int: ...
    def next(self, timeout_seconds: float, start: int, check: Callable[[], None] | None = None) -> Batch | None: ...
    def report(self, batch: Batch, losses: Sequence[float] | Any) -> None: ...
    def report_validation(self, score: float) -> None: ...
    def stats(self) -> str: ...
    def resize_cache(self, cache: str) -> int: ...
    def save_state(self, epoch: int, batch: int) -> bytes: ...
    def load_state(self, state: bytes, strata: int) -> tuple[int, int, int]: ...
    def seat(self, strata: bytes) -> None: ...
    def tell_scores(self, epoch: int) -> bytes: ...
    def take_scores(self, scores: bytes) -> None: ...
    def close(self) -> None: ...

@final
class Batch:
    """A delivered batch. Its slot, if it has one, is free once it, its views and tensors are dropped."""

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
    # Views of each image; 0 for raw records and images of their own sizes.
    @property
    def views(self) -> int: ...
    def images(self, view: int) -> View: ...
    def crops(self, view: int) -> View: ...
    def flipped(self, view: int) -> View: ...
    def image(self, row: int) -> View: ...
    def heights(self) -> View: ...
    def widths(self) -> View: ...
    def record(self, row: int) -> View: ...
    def memoryviews(self) -> list[memoryview]: ...
    # Extra fields: position and kind of one, and whether it has views; those of one shape, and masks; the bytes of
    # others; rows of numbers.
    def field_names(self) -> list[str]: ...
    def field(self, name: str) -> tuple[int, str, bool]: ...
    def fixed_field(self, field: int, view: int) -> View: ...
    def field_bytes(self, field: int) -> list[bytes | None]: ...
    def field_rows(self, field: int, view: int) -> tuple[bytearray, list[int]]: ...

@final
class Fields:
    """Reads samples' extra fields from the dataset. Opens nothing before the first request."""

    def read(self, batch: Batch) -> list[dict[str, Any]]: ...
    def shard_of(self, sample: int) -> str: ...

@final
class RecordReader:
    """Reads the records of a packed dataset, and looks up its index."""

    @staticmethod
    def open(folder: str, content: tuple[int, int, str] | None, buffered: bool) -> RecordReader: ...
    def renewed(self) -> RecordReader: ...
    def __len__(self) -> int: ...
    # Samples, classes and content id.
    @property
    def content(self) -> tuple[int, int, str]: ...
    def classes(self) -> list[str]: ...
    def sample(self, sample: int) -> tuple[str, int]: ...
    def labels(self) -> list[int]: ...
    def read(self, samples: list[int]) -> list[bytes]: ...
    def fields(self, samples: list[int]) -> list[dict[str, bytes]]: ...
    def fault(self, sample: int, text: str) -> RecordError: ...

@final
class View:
    """One column of a batch in shared memory, which DLPack importers accept without a copy."""

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
