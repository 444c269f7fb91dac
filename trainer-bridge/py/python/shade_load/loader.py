"""Loader: an iterable over a dataset's batches in shared memory."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Never

from . import _native
from ._native import AnotherStart, ShadeError
from .as_data_loader import AsDataLoader, misplaced
from .attach import Attach
from .batch import Batch
from .compare.inside import Arguments, InRun
from .dataset import PackedDataset
from .device import CudaDevice
from .exchange import Exchange, torch_exchange
from .fields import kinds
from .in_place import indexed
from .launch import find_daemon
from .metrics import Looks
from .mixture import Share, arguments, mixed, samplers
from .nodes import Placement, place
from .daemon import Daemon, settings
from .options import (
    BATCH_SAMPLES_MAX,
    UINT32_MAX,
    UINT64_MAX,
    choice,
    dataset_path,
    flag,
    integer,
    job_name,
    number,
    shown,
    sides,
)
from .per_sample.function import PerSample
from .plan import BY_LOSS, Plan, Preset
from .position import Position
from .ranks import default_job, may_be_one_of_several, ranks
from .recipe import check_uses, recipe_of_floats
from .rest_of_epoch import RestOfEpoch
from .reports import Reports
from .scores import Leaders, ScoreExchange
from .state import STATE_VERSION, check_state
from .timeouts import Patience
from .transforms import Decode, document, has_views

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from .per_sample.ahead import Ahead

# Suffix of the job that validates beside a job that trains.
VALIDATION_SUFFIX = ".eval"
# Share of `Daemon.timeout` after which a rank that makes no Loader is missed: 60 s of 300.
EXCHANGE_SHARE = 0.2


class Loader(AsDataLoader):
    """Batches of a dataset, packed or not, for one rank.

    The first Loader of a dataset on a node starts a daemon that reads, caches and decodes for all
    ranks of all trainings on it, and ends with the last of them. Each iteration is one epoch. The next
    iteration is the next epoch, or the same one again if it was left early; `set_epoch` chooses
    another.

    A batch unpacks into its images (or records) and its labels:

        with Loader("photos.shade", 256, image_size=224) as loader:
            for images, labels in loader:
                ...

    `len(loader.dataset)`, `loader.batch_size`, `loader.classes` and `loader.class_to_idx` are those
    of a DataLoader over torchvision's ImageFolder. `Plan(sampler="pads")` draws by importance,
    which needs each sample's loss: call `report` with the batch and its losses.

    `plan` configures the batches' content, and `daemon` the daemon: see `Plan` and `Daemon`.

    Args:
        dataset: Folder made by `shade-pack create` or `shade-pack index`; or an ImageFolder or a folder of
            WebDataset tars, not packed: its index is made once and kept in the user's cache folder
            ($XDG_CACHE_HOME/shade), and compared with the folder at each start. All of these may be
            in a bucket: "s3://bucket/prefix". Or a mixture of packed datasets: a list of (folder, share) or
            (folder, share, sampler), such as [("a.shade", 0.7), ("b.shade", 0.3, "pads")]. Each batch of all ranks
            has them in the ratio of their shares. Ids follow one another; classes are those of all, by name.
        batch_size: Samples per batch and rank, 1 to 32768.
        image_size: Side, or (height, width): images are decoded, resized to just cover it, and
            cropped from the middle. A side is short for decode=[Resize(side), CenterCrop(side)].
        decode: Transforms that the daemon applies instead, from `shade_load.transforms` or
            torchvision, such as [RandomResizedCrop(224), RandomHorizontalFlip()]. Without a crop
            among them, all images must have one size, and are delivered as they are. A list of lists:
            several views of each image, and `batch.images` is a list of tensors. "none": each
            image in its own size; then `batch.images` is a list, and the ring has room for three of
            the largest batches. Without image_size and decode: raw records.
        channels_last: Use torch's memory format of that name for images.
        dtype: Type of the images' values: "uint8", or "float32", "float16" or "bfloat16", or torch's
            dtypes of these names. Default: "uint8", from 0 to 255. Floats are from 0 to 1, or normalized;
            the daemon makes them, so that the training's process does not. They take two or four
            times the room in the ring.
        normalize: (mean, std), each a number for each colour or one, as torchvision's Normalize has
            them. The daemon makes `(x / 255 - mean) / std`, to the last bit. It needs a dtype of floats;
            then a Normalize at the end of `decode` does the same.
        exact: Decode as torchvision does, without shortcuts: large JPEGs are not reduced while they
            are decoded, and damage outside a crop is found.
        fields: Extra fields of each sample that come with the batch, as `batch["caption"]`: their
            names, or names with what they are: {"caption": str, "embedding": "float32[512]", "boxes":
            "float32[*, 4]"}. A list with one value for each sample, `bytes` if nothing else is said,
            and None where a sample has none. Numbers of one shape are one tensor, and a sample without
            them is a bad record; rows of numbers are `values` and `offsets`. "mask" and "boxes[xyxy]"
            follow the image (docs/masks-and-boxes.md). They are read with their records, and are cached
            with them.
        transform: Function of each batch's images, called in this process; its result is
            `batch.images`. Of several views it gets each by itself. ToTensor and Normalize at the
            end of `decode` come before it: here if `dtype` is "uint8", else in the daemon. Or
            `PerSample(function, workers=4)`: a function of each sample, called in processes.
        device: CUDA device, such as "cuda:0", to which images, labels and weights are copied on a
            stream of its own while the model computes. The ring is pinned for that. Default: the
            CPU, without a copy.
        train: False for validation: sampler "sequential", as a job of its own (NAME.eval) of the
            same daemon. It uses what the cache has and leaves it, and training's scores, as they
            are. Every sample comes once and in order, with any number of ranks and every policy. Of
            `plan` it uses `indices`, `bucket`, `tail`, `on_error` and `bad_max`.
        cache: Memory for records: bytes, "8GiB", or "20%" of the dataset. Default: "auto", the
            whole dataset, or half of the memory that is free when the daemon starts if that is
            less; "20%" with the presets that follow papers.
        seed: Seed of all random draws. The same seed and losses give the same epochs.
        rank, world_size: This process and how many there are, on all nodes. Default:
            torch.distributed's if it is initialised, else $RANK and $WORLD_SIZE, else those of
            Slurm's step (srun), else 0 of 1.
        preset: A system. It gives the sampler and order if `plan` has none, the policy if `daemon`
            has none, and the cache's size if `cache` is not given. "permutations" takes each sample once per epoch, "clairvoyant" draws
            by importance; both cache by the plan. The others are for comparison: "shade", "icache",
            "coordl", "quiver" and "deepio" follow their papers; "default" (permutations, LRU),
            "base" and "ilfu" are baselines. `shade-load serve --help` describes each.
        plan: An epoch's samples, their order, and the treatment of bad ones. Default: each sample
            once, shuffled.
        daemon: How to find and run the daemon: job, workers, ring, timeout, exchange and others.
    """

    _session: _native.Session | None = None
    _device: CudaDevice | None = None
    _leaders: Leaders | None = None
    _scores: ScoreExchange | None = None
    _in_run: InRun | None = None
    # What calls a function of single samples.
    _ahead: Ahead | None = None

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Sequence[Share],
        batch_size: int,
        *,
        image_size: int | tuple[int, int] | None = None,
        decode: Decode | None = None,
        channels_last: bool = False,
        dtype: str | torch.dtype = "uint8",
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        exact: bool = False,
        fields: Iterable[str] | Mapping[str, Any] | None = None,
        transform: Callable[[Any], Any] | PerSample | None = None,
        device: str | torch.device | None = None,
        train: bool = True,
        cache: int | str | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        preset: Preset = "permutations",
        plan: Plan = Plan(),
        daemon: Daemon = Daemon(),
        **moved: Never,
    ) -> None:
        if moved:
            raise misplaced(moved, ("dataset", "batch_size", *(Loader.__init__.__kwdefaults__ or ())))
        _check_kinds(plan=(plan, Plan), daemon=(daemon, Daemon))
        (self.rank, self.world_size), (dataset, self._mixture) = ranks(rank, world_size), mixed(dataset)
        per_sample, transform = PerSample.apart(transform)
        dataset, (decode, transform, floats) = indexed(dataset), recipe_of_floats(decode, transform, dtype, normalize)
        self._trains, self._has_views = flag("train", train), has_views(decode)
        self._in_run = InRun.of(dataset, self._trains)
        if self._in_run is not None:
            plan, daemon, cache, seed = self._in_run.replaced(Arguments(plan, daemon, cache, seed))
        self._job = _document(
            dataset,
            preset=choice("preset", preset, _native.PRESETS),
            train=self._trains,
            seed=integer("seed", seed, 0, UINT64_MAX),
            batch_size=integer("batch_size", batch_size, 1, BATCH_SAMPLES_MAX),
            image_size=None if image_size is None else sides("image_size", image_size),
            decode=None if decode is None else document(decode),
            channels_last=flag("channels_last", channels_last) or (per_sample is not None and (decode, image_size, plan.bucket) != (None, None, ())),
            **floats,
            exact=flag("exact", exact),
            fields=kinds(fields),
            world_size=self.world_size,
            ring_bytes=daemon.ring_bytes(),
            plan=plan.arguments() | arguments(self._mixture),
        )
        suffix = "" if self._trains else VALIDATION_SUFFIX
        if daemon.job is not None:
            job_name(daemon.job + suffix)
        path, socket, exchange = dataset_path(dataset), daemon.socket_path(), _exchange(daemon, self.rank, self.world_size)
        attach = self._attachment(path, socket, plan, daemon, daemon.settings(cache, preset, self._job["fields"]))
        self._indices, self._transform, self._torch = plan.indices, transform, _torch()
        has_images = self._job["decode"] is not None
        check_uses(self._torch, device, transform, has_images, per_sample is not None)
        # Last of all that may fail in one rank only: the others wait for it.
        placement = place(path, socket, self.rank, self._job, plan.strata if self._trains else 1, exchange)
        self._job["ranks_here"], self._job["plan"]["strata"] = placement.ranks_here, placement.strata
        # The strata that the user chose, which a state must have, or 0.
        self._strata = (plan.strata or 0) if self._trains else 0
        self._at, self._patience, self._reports = Position(), Patience(daemon.timeout), Reports(self._job["plan"])
        # What was made before a failure is left: the error may keep this object alive.
        with ExitStack() as opening:
            opening.callback(self.close)
            self._attach(attach, placement, daemon, suffix)
            self._begin(device, per_sample)
            opening.pop_all()

    def _begin(self, device: Any, per_sample: PerSample | None) -> None:
        """Begins what works beside the session: copies to a device, and processes of a function."""
        if self._torch is not None and device is not None:
            self._device = CudaDevice(self._torch, device, *self._open().payload)
        if per_sample is not None:
            what, self._workers = (self._transform, self._job, self.rank, self._has_views), per_sample.workers
            self._ahead = per_sample.begin(self._torch, *what, self._dataset.path_of)

    def _attachment(
        self, path: str, socket: str | None, plan: Plan, daemon: Daemon, settings_of: dict[str, Any]
    ) -> Attach:
        """What this rank attaches with, to a daemon with these settings."""
        weights = None if plan.weights is None else plan.weights.data
        daemon_of = (settings_of, find_daemon(), daemon.timeout, daemon.survive, daemon.deaths_max)
        return Attach(path, socket, self.rank, self._job, weights, plan.indices, *daemon_of)

    def _attach(self, attach: Attach, placement: Placement, daemon: Daemon, suffix: str) -> None:
        """Attaches to the daemon, as a rank of the job of that name or of a free one."""
        self._job["pool_scores"] = daemon.exchange == "torch" and len(placement.leaders) > 1
        # Plans by losses or deliveries need those of all nodes: each plan, or only a state.
        if self._job["pool_scores"] and not samplers(self._job["plan"]).isdisjoint(("replacement", *BY_LOSS)):
            self._leaders = Leaders(placement.leaders, self.rank, daemon.timeout * EXCHANGE_SHARE, self._job)
            self._patience.check = self._leaders.check
        # Ranks of one training need the same name.
        or_free_name = daemon.job is None and self.world_size == 1 and not may_be_one_of_several()
        session = attach((daemon.job or default_job(self.world_size)) + suffix, or_free_name)
        self._session, self.job, self._looks = session, session.job, Looks()
        if placement.seats:
            session.seat(placement.seats)
        if self._leaders is not None and self._leaders.has_this_rank:
            self._scores = ScoreExchange(session, self._leaders)
        self._fields = session.fields(buffered := daemon.io == "buffered")
        self._dataset = PackedDataset(self, attach.dataset, session.content, buffered)
        if self._in_run is not None:
            self._in_run.attached(self, session.settings, session.content_id)

    def __len__(self) -> int:
        """Batches per epoch and rank, equal in all ranks. Samplers "infobatch", "seta" and "iis" may give fewer.

        In an epoch that was saved with another batch size or world size: those of the rest, and the
        number from which they are counted.
        """
        return self._at.batches(self._open().batches_per_epoch)

    def __repr__(self) -> str:
        job, state = self._job, "closed" if self._session is None else "open"
        what = "records" if job["decode"] is None else "images"
        kind = f"trains, sampler={job['plan']['sampler']!r}" if self._trains else "validates"
        return (
            f"Loader({self.dataset.root!r}, {self.batch_size}: {what}, {kind}, job={self.job!r}, rank={self.rank}, "
            f"world_size={self.world_size}, epoch={self._at.epoch}, {state})"
        )

    @property
    def batch_size(self) -> int:
        """Samples per batch and rank. The epoch's last batch may be shorter; see `Plan.tail`."""
        return self._job["batch_size"]

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is left out: `Plan(tail="drop")`."""
        return self._job["tail"] == "drop"

    @property
    def dataset(self) -> PackedDataset:
        """The dataset: `len(loader.dataset)`, `loader.dataset.classes`."""
        return self._dataset

    @property
    def samples(self) -> int:
        """Samples of the dataset."""
        return len(self._dataset)

    @property
    def parts(self) -> tuple[range, ...]:
        """Sample ids of each dataset of a mixture; of one dataset, all."""
        return (range(self.samples),) if self._mixture is None else self._mixture.parts

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by label. The first access reads the dataset's index."""
        return self._dataset.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Label of each class name."""
        return self._dataset.class_to_idx

    def _samples_per_rank(self) -> int:
        if self._job["plan"]["parts"]:
            return len(self) * self.batch_size
        samples = self.samples if self._indices is None else len(self._indices)
        return min(-(-samples // self.world_size), len(self) * self.batch_size)

    @property
    def needs_losses(self) -> bool:
        """Whether its sampler draws by losses: `report` them."""
        return not samplers(self._job["plan"]).isdisjoint(BY_LOSS)

    @property
    def daemon_pid(self) -> int:
        """Process id of the daemon."""
        return self._open().daemon_pid

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next iteration's epoch. One that has given batches goes on with its own.

        After `load_state_dict` the state's own epoch is continued; any other starts at its first
        batch. An iterator that has given no batch yet gives this epoch's, for Lightning makes its
        first iterator before it sets the epoch.
        """
        session = self._open()
        epoch = integer("epoch", epoch, 0, UINT32_MAX)
        if epoch != self._at.epoch and self._at.is_unbegun:
            self._at.start = self._start(session, epoch, 0)
        self._at.set_epoch(epoch)

    def __iter__(self) -> Iterator[Batch]:
        """Starts the epoch at once, so that the daemon fills the ring from here on."""
        session = self._open()
        epoch = self._at.next_epoch(len(self))
        start = self._start(session, epoch, self._at.resume_at)
        # Only now, as all that follows: a start that fails changes nothing.
        self._reports.begin(is_first=self._at.iteration == 0)
        self._at.begin(epoch, start)
        if self._in_run is not None:
            self._in_run.began()
        return RestOfEpoch(self)

    def report(self, batch: Batch, losses: Tensor | Sequence[float]) -> None:
        """Reports a batch's losses, one per sample in its order, for drawing later epochs.

        Any number works that is larger for harder samples. Losses may come late, for a batch's
        first samples only, for some batches, or from some ranks; `stats()` counts them. After an
        epoch without any loss the next one is a permutation, and a `RuntimeWarning` says so once. A
        tensor is detached and moved to the CPU, which waits for its device.
        """
        if not self._trains:
            raise ShadeError("report: this Loader validates (train=False) and does not use losses")
        if not isinstance(batch, Batch):
            raise TypeError(f"batch: got a {type(batch).__name__}, expected a Batch of this Loader")
        if self._torch is not None and isinstance(losses, self._torch.Tensor):
            losses = losses.detach().to("cpu", self._torch.float32)
        self._open().report(batch._native, losses)
        self._reports.came(len(losses))

    def report_validation(self, score: float) -> None:
        """Reports a validation score, higher is better. `Plan(rep=...)` applies while it rises.

        Any or all ranks may report it. One score per epoch counts: the lowest rank's latest.
        """
        score = number("score", score, -1e300, 1e300)
        self._open().report_validation(score)
        if self._in_run is not None:
            self._in_run.scored(score)

    def stats(self) -> dict[str, Any]:
        """The figures of this Loader's job and of the daemon, and `stall_seconds`: this process's waiting
        time for batches. `jobs` lists all jobs of the daemon. `successors` says how often the daemon
        has died and was replaced: sums count since the last of them began.
        """
        session = self._open()
        for_function = 0.0 if self._ahead is None else self._ahead.wait_seconds
        return {**json.loads(session.stats()), "stall_seconds": session.stall_seconds + for_function}

    def metrics(self) -> dict[str, float]:
        """Numbers for a logger, such as `wandb.log(loader.metrics())`: of the time since the last call.

        The names begin with "shade/"; docs/why-it-waits.md lists them.
        """
        return self._looks.look(self.stats())

    def resize_cache(self, cache: int | str) -> int:
        """Gives the running daemon's cache another size: bytes, "8GiB", or "50%" of the dataset.

        A larger cache fills as records are read. A smaller one keeps what its policy values most,
        and the daemon gives the memory back. One rank decides for all, at any time. A Loader may if
        its training's processes started the daemon, or if no other job is attached; else use
        `shade-load resize`. Returns the size in bytes.
        """
        size = str(settings({"cache": cache})["cache"])
        if size == "auto":
            raise ValueError(f"cache: got {cache!r}, expected bytes or a share of the dataset")
        return self._open().resize_cache(size)

    def state_dict(self, undone: int = 0) -> dict[str, Any]:
        """A state for `load_state_dict`, to continue after the last delivered batch, or `undone` batches before."""
        session, batch = self._open(), self._at.batch - integer("undone", undone, 0, self._at.batch)
        if self._leaders is not None:
            self._leaders.wait(lambda: self.stats()["epoch"]["scores_missing"])
        return {
            "version": STATE_VERSION,
            "content_id": session.content_id,
            "job": copy.deepcopy(self._job),
            "epoch": self._at.epoch,
            "batch": batch,
            "daemon": session.save_state(self._at.epoch, batch),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state: the next iteration delivers the identical rest of its epoch.

        All ranks load the state that one of them saved. With another batch size or world size the
        ranks share the rest out in batches of their own. An unused iterator delivers it.
        """
        session = self._open()
        check_state(state)
        if state["content_id"] != session.content_id:
            raise ValueError(
                f"state: saved on a dataset with content id {state['content_id']}, this one has {session.content_id}"
            )
        plan, other = self._job["plan"], state["job"]["plan"]
        told = {name: (other[name], plan[name]) for name in ("sampler", "order", "seed")}
        for name, (saved, own) in {**told, "tail": (state["job"]["tail"], self._job["tail"])}.items():
            if saved != own:
                raise ValueError(f"state: saved with {name}={saved!r}, this Loader has {own!r}")
        if other["weights_digest"] != plan["weights_digest"]:
            raise ValueError("state: saved with other weights than this Loader's Plan(weights=...)")
        if other["subset_digest"] != plan["subset_digest"]:
            raise ValueError("state: saved with other samples than this Loader's Plan(indices=...)")
        for name, of_one in (("parts", []), ("epoch_length", "first")):
            if (saved := other.get(name, of_one)) != plan[name]:
                raise ValueError(f"state: saved with {name}={saved!r} of a mixture, this Loader has {plan[name]!r}")
        epoch, batch, batches = session.load_state(state["daemon"], self._strata)
        self._at.load(epoch, batch, batches)
        if self._scores is not None:
            self._scores.restart(state["daemon"])
        if self._at.is_unbegun:
            self._at.start = self._start(session, epoch, batch)

    def _start(self, session: _native.Session, epoch: int, batch: int) -> int:
        """Starts the epoch there, and returns the number of this start."""
        start = session.start_epoch(epoch, batch)
        # What a function of PerSample has ahead is of another epoch.
        if self._ahead is not None:
            self._ahead.begin()
        if self._scores is not None:
            self._scores.start(epoch)
        return start

    def close(self) -> None:
        """Leaves the daemon. Batches that you keep stay valid. Closing again does nothing."""
        session, device, scores, leaders, ahead = self._session, self._device, self._scores, self._leaders, self._ahead
        self._session = self._device = self._scores = self._leaders = self._ahead = None
        # Each of them, whatever happens to those before it.
        with ExitStack() as closing:
            if session is not None:
                closing.callback(session.close)
            if device is not None:
                closing.callback(device.close)
            if ahead is not None:
                closing.callback(ahead.close)
            if scores is not None:
                closing.callback(scores.close)
            elif leaders is not None:
                closing.callback(leaders.leave)
            if self._in_run is not None:
                closing.callback(self._in_run.close)

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            # A forked child may not close its parent's session, and an error here cannot be caught.
            pass

    def _next(self, is_first: bool, start: int) -> Batch | None:
        """The next batch of the iteration with this start, whose first one it may be; none at its end."""
        session = self._open()
        if self._reports.are_awaited and not is_first:
            # Between batches: the plan is drawn, and a warning raised as an error loses no batch.
            self._reports.check(self.stats()["epoch"]["reports_missing"])
        native, made = self._take(session, start)
        if start != self._at.start:
            raise AnotherStart
        # After a wait that fails the epoch goes on, or begins, where it would have.
        if native is None:
            if self._in_run is not None:
                self._in_run.delivered(self, self._at.epoch, is_last=True)
            self._at.end()
            return None
        if is_first and self._scores is not None:
            self._scores.arrive(self._at.epoch)
        if self._device is not None and self._device.is_of_another_ring(session.successors):
            self._device.move(session.successors, *session.payload)
            session.let_go_of_former_payloads()
        how = self._transform, self._device, self._has_views, self._mixture
        batch = Batch(native, self._torch, self._fields, *how, made)
        self._at.deliver(native.index)
        if self._in_run is not None:
            self._in_run.delivered(self, self._at.epoch, is_last=self._at.batch == len(self))
        return batch

    def _take(self, session: _native.Session, start: int) -> tuple[_native.Batch | None, Any]:
        """The next batch from the ring, and the results of a function of its samples, if there is one."""
        if self._ahead is None:
            return self._patience.next_batch(session, start), None
        return self._ahead.next(session, self._patience, start)

    def _open(self) -> _native.Session:
        if self._session is None:
            raise ShadeError("the Loader is closed")
        self._session.check_open()
        return self._session


def _check_kinds(**given: tuple[Any, type]) -> None:
    """Refuses an argument that is of another type than its own."""
    for name, (value, kind) in given.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name}: got {shown(value)}, expected a {kind.__name__}")


def _document(dataset: Any, **arguments: Any) -> dict[str, Any]:
    """The job of these arguments on a dataset, checked: every field has its value."""
    path = os.fspath(dataset) if isinstance(dataset, str | os.PathLike) else None
    return json.loads(_native.job_document(json.dumps(arguments), path))


def _exchange(daemon: Daemon, rank: int, world_size: int) -> Exchange | None:
    """How this rank tells the others where it is."""
    if daemon.exchange == "torch":
        return torch_exchange(rank, world_size, daemon.timeout * EXCHANGE_SHARE)
    return None if isinstance(daemon.exchange, str) else daemon.exchange


def _torch() -> ModuleType | None:
    try:
        return import_module("torch")
    except ImportError:
        return None
