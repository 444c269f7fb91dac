"""Plan: the content of a training's batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from . import _native
from .indices import sample_indices
from .options import UINT32_MAX, Options, flag, integer, job_name, real, shown, sides
from .weights import weight_table

Sampler = Literal[
    "uniform", "pads", "iis", "cis", "sequential", "replacement", "echo", "infobatch", "seta", "weighted", "balanced"
]
Order = Literal["shuffled", "spaced", "hits_first", "opportunistic"]
Preset = Literal[
    "permutations",
    "clairvoyant",
    "shade",
    "icache",
    "coordl",
    "quiver",
    "deepio",
    "coordl-prep",
    "oneaccess",
    "default",
    "base",
    "ilfu",
]

# Samplers that draw by the losses that are reported.
BY_LOSS = ("pads", "iis", "cis", "infobatch", "seta")
# Those that leave samples out: an epoch may have fewer batches than the Loader's length.
LEAVE_OUT = ("infobatch", "seta", "iis")
# Fields that say something of single samples. The daemon gets them beside the others.
_TABLES = ("indices", "weights")


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Options):
    """The content of a training's batches: samples, their order, and the treatment of bad ones.

        Loader("photos.shade", 256, image_size=224, plan=Plan(sampler="echo"))

    All ranks of a training need equal plans. The same plan, seed and losses give the same batches;
    with `rep` above 1 they also depend on the cache's content.

    Args:
        sampler: How an epoch's samples are drawn. Default: the preset's, which is "uniform": each
            sample once per epoch.
            "pads" draws by importance, with repetition, from the second epoch on. It needs each
            sample's loss (`Loader.report`); an epoch after one without any loss is a permutation.
            Choose it for fewer reads, but not if labels are wrong; "balanced" for rare classes.
            "iis" leaves out samples of low importance, so epochs are shorter. "cis" delivers those
            samples with weight 0. Both are for comparison.
            "sequential" takes each sample once, in the dataset's order. `train=False` implies it.
            "replacement" draws uniformly with replacement: as many repeats as "pads", no losses.
            "echo" reads a part of the samples in each epoch and delivers each `echo` times, augmented
            anew: 1/`echo` of the reads. Repeats are some batches apart (`gap`).
            Choose it if the store is the limit. "infobatch" leaves out a share of the samples of low
            loss and weights the rest of them (`batch.weights`), so epochs are shorter. "seta" has
            three of five groups of samples, which are grouped by their losses; epochs are shorter.
            "weighted" draws by `weights`, and "balanced" so that all classes are equally frequent.
            Both need no losses. They change the distribution that the model trains on. If that is
            the purpose, do not multiply the loss by `batch.weights`, which undo it.
        indices: The samples to deliver, as torch's Subset has them: a range, sequence, array or tensor
            of sample ids, each at most once and in any order, or a mask with a bool for each sample
            of the dataset. Default: None, all of them. `batch.ids` are still the dataset's ids.
            Choose them for folds, for a validation on a part, or for a short try. They need
            `strata` 1.
        weights: A weight for each sample, by sample id, for "weighted": a sequence, array or tensor
            of numbers that are finite, not negative and not all 0. A sample comes in proportion to
            its weight, and never if it is 0. Default: None.
        replacement: Draw with replacement by "weighted" and "balanced". Default: True, as torch's
            WeightedRandomSampler. False rounds: a sample that is expected 2.3 times comes 2 or 3
            times.
        order: Order of an epoch's samples. Default: the preset's, which is "shuffled". "spaced"
            puts repeats of a sample some batches apart (`gap`), for more hits in a small cache.
            "hits_first" (SHADE as published) and "opportunistic" (DeepIO) are for comparison.
        rep: Factor by which "pads" draws cached samples more often, at least 1. Default: 1.0, which
            is off. Raise it if the store is too slow: more hits, less variety.
        hit_cap: Largest share of an epoch, 0 to 1, for such repeats. Default: 0.6. Lower it if a
            high `rep` leaves too few other samples in an epoch.
        cover: A sample that was last delivered this many epochs ago is added, so that none is
            missing for as many in a row. Default: 5; 0 is off. It applies to "pads", "replacement",
            "iis", "cis", "infobatch" and "seta". Lower it if rare samples are seen too seldom.
        explore: Share of draws by "pads", 0 to 1, that ignore importance. Default: 0.0. Raise it if
            losses are noisy.
        echo: How often "echo" delivers a sample that it reads, at least 1. Default: 2.0; it need
            not be whole. Raise it if the store is too slow.
        gap: Most batches of one rank from a use of a sample to the next, by "echo" and the order
            "spaced"; the fewest are a third of them. Default: None, which is 60. A cache that holds
            fewer batches when the training begins makes it four fifths of what it holds, at least
            6, so that repeats are hits. A state goes on with its own. With ranks on several nodes
            None is always 60. Give one for plans that do not depend on the cache's size.
        prune: Share of the samples with a loss below the mean, 0 to 1, that "infobatch" leaves out.
            Default: 0.5.
        whole_from: The epoch from which "infobatch" and "seta" leave nothing out. Default: 0, which
            is never. The papers have 7/8 of the number of epochs.
        pace: Move samples by a few batches, so that batches and ranks miss the cache evenly.
            Default: False. Set it if some batches come late and others early.
        draw_ahead: Draw each epoch an epoch early, from losses that are an epoch older. Default:
            False. Set it for more hits: the cache then sees a whole epoch ahead.
        strata: Number of equal parts of the dataset that are drawn each on its own. A rank has its
            parts to itself if this is a multiple of the number of ranks: then each node draws from
            its own losses, and caches its own samples only. Default: None, which is 1, the dataset
            as a whole, or on several nodes a number that suits them. "weighted", "balanced", "iis",
            "infobatch", "seta", `pace` and `indices` need 1: then all nodes draw one plan, and wait for
            each other's losses if it goes by them. Set it to resume a training with the number that
            it had.
        mix: Share of the strata, 0 to 1, that change seats at each epoch, and so perhaps ranks and
            nodes, which read them anew. Default: 0.0: each sample stays at its rank. Set it if
            ranks need to see more than their share of the dataset, as for BatchNorm with local
            statistics. With draws by importance a new rank goes by the scores that its node has.
        epoch_length: Length of an epoch of a mixture, `Loader([(dataset, share), ...])`. Default:
            "first", until each sample of the first dataset has come; "longest", of every dataset;
            both are rounded up to whole batches of all ranks. Or a number of samples.
        bucket: Heights and widths of images, such as `[(512, 768), (640, 640), (768, 512)]`, of which
            each batch of all ranks has one: an image is in the bucket whose ratio of the sides is
            nearest to its own, and is resized to cover its size, or as `decode` says, whose sizes
            are replaced. `shade_load.bucket_sizes` lists sizes of about one number of pixels. Each
            sample comes as often as without; what does not fill a batch of its bucket joins the
            neighbours. Default: (), all images have one size. Not with `strata`, `pace`, `group` or
            mixtures.
        group: Name of a group of trainings on one daemon, such as a sweep. Their plans are coupled:
            each draws by its own importance, and all want the same samples at the same time, so
            that each is read once. They need equal batch sizes and speeds to stay together; one
            that falls behind only reads more. Random crops follow from the group's name, so that
            each image is decoded once, too. Default: None. Set it in all trainings of a sweep; not
            in those of an ensemble, which should differ.
        tail: An epoch's last batch if the samples do not fill it. Default: "even": shorter, equally
            so in all ranks. "drop" leaves it out. "pad" fills it up; `batch.padding` marks the
            added samples. Change it if the model needs batches of one size.
        on_error: Treatment of a record that is damaged or cannot be decoded. Default: "raise",
            which ends the epoch with an error. "skip" leaves it out; "substitute" replaces it by
            another sample of its class. An empty batch is not delivered; with several ranks, which
            need equal numbers of batches, it is an error. Change it for a long training on data
            that you cannot repair.
        bad_max: Largest share of an epoch's samples, 0 to 1, over a node's ranks, that may be
            skipped or substituted. One more ends the epoch with `RecordError`. Default: 0.01. Eight
            are always allowed, unless it is 0. Raise it if more bad records are known to be
            harmless.
    """

    sampler: Sampler | None = None
    order: Order | None = None
    rep: float = 1.0
    hit_cap: float = 0.6
    cover: int = 5
    explore: float = 0.0
    echo: float = 2.0
    gap: int | None = None
    prune: float = 0.5
    whole_from: int = 0
    indices: Any = None
    weights: Any = None
    replacement: bool = True
    pace: bool = False
    draw_ahead: bool = False
    strata: int | None = None
    mix: float = 0.0
    epoch_length: Literal["first", "longest"] | int = "first"
    bucket: Sequence[tuple[int, int]] = ()
    group: str | None = None
    tail: Literal["even", "drop", "pad"] = "even"
    on_error: Literal["raise", "skip", "substitute"] = "raise"
    bad_max: float = 0.01

    def __post_init__(self) -> None:
        if self.indices is not None:
            object.__setattr__(self, "indices", sample_indices(self.indices))
        if self.weights is not None:
            object.__setattr__(self, "weights", weight_table(self.weights))
        if self.group is not None:
            job_name(self.group, "group")
        for field in fields(self):
            if field.name not in (*_TABLES, "group"):
                object.__setattr__(self, field.name, _of_its_type(field.name, getattr(self, field.name), field.default))
        for name, value in self.arguments().items():
            _native.check_field(name, value)
        if (self.weights is not None) != (self.sampler == "weighted"):
            got = "none" if self.weights is None else f"{self.weights!r} with the sampler {self.sampler!r}"
            raise ValueError(f'weights: got {got}; give them with sampler="weighted", and only then')

    def arguments(self) -> dict[str, Any]:
        """The fields that were given or have a default, with digests in place of weights and indices."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _TABLES}
        given["bucket"] = [list(size) for size in self.bucket]
        digests = {
            "weights_digest": 0 if self.weights is None else self.weights.digest,
            "subset_digest": 0 if self.indices is None else self.indices.digest,
        }
        return {name: value for name, value in {**given, **digests}.items() if value is not None}


def _of_its_type(name: str, value: Any, default: Any) -> Any:
    """A field's value in the type of its default. The daemon's own check says which values there are."""
    if value is None and default is None:
        return None
    if isinstance(default, bool):
        return flag(name, value)
    if name == "bucket":
        try:
            sizes = None if isinstance(value, str | bytes) else list(value)
        except TypeError:
            sizes = None
        if sizes is None:
            raise TypeError(f"bucket: got {shown(value)}, expected heights and widths, such as [(512, 768), (768, 512)]")
        return tuple(sides(name, size) for size in sizes)
    if name == "epoch_length" and not isinstance(value, str):
        return integer(name, value, 1, UINT32_MAX)
    if isinstance(default, int) or name in ("strata", "gap"):
        return integer(name, value, 0, UINT32_MAX)
    if isinstance(default, float):
        return real(name, value)
    if not isinstance(value, str):
        raise TypeError(f"{name}: got {shown(value)}, expected a text")
    return str(value)
