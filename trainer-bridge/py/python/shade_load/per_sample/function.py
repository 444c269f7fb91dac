"""PerSample, which is a Loader's `transform`, and Sample, which its function gets."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .._native import ShadeError
from ..options import integer, shown

if TYPE_CHECKING:
    from .ahead import Ahead

# The original path of a sample, by its id.
PathOf = Callable[[int], str]

# One page of the shared memory has a number for each.
WORKERS_MAX = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a batch, as a function of PerSample gets it. It may keep and change all of it.

    `image` is a NumPy array, height x width x channels, of the Loader's `dtype`; with several views a
    list of such. A Loader that delivers raw records gives `record` instead.
    """

    # Sample id and class label.
    id: int
    label: int
    # The epoch, from 0.
    epoch: int
    # 0 to 2**64 - 1, from the Loader's seed, the epoch and the sample, whatever process has it.
    seed: int
    # The Loader's extra fields by name: bytes, texts, what was parsed, arrays; or None.
    fields: dict[str, Any] = field(default_factory=dict)
    image: Any = None
    record: bytes | None = None


class PerSample:
    """A Python function that processes call with each sample: `Loader(transform=PerSample(...))`.

    It is for what neither `decode` nor a function of whole batches can do. The daemon reads, caches
    and decodes as always. `batch.images` has the results, in the batch's order:

        def augment(sample):
            return album(image=sample.image)["image"]

        loader = Loader("photos.shade", 256, image_size=224, transform=PerSample(augment, workers=4))

    A result is an array, a tensor or a number, and all of them have one shape and type, or those of
    images of one size with `Plan(bucket=...)`: they become one tensor. A tuple or a dict of such
    becomes a tuple or a dict of tensors. Anything else, such as a text or a list, is pickled, and
    becomes a list with a value for each sample.

    Before each call `random`, NumPy and torch are seeded with `sample.seed`, and torch has one thread.

    Args:
        function: Called with a `Sample`. It is pickled: a function of a module, or an object of a
            module's class. A script that defines it needs `if __name__ == "__main__":`.
        workers: Processes of this rank, 1 to 256. They start with the Loader and end with it.
    """

    def __init__(self, function: Callable[[Sample], Any], workers: int) -> None:
        if not callable(function):
            raise TypeError(f"PerSample: got {shown(function)}, expected a function of a Sample")
        if find_spec("numpy") is None:
            raise ShadeError("PerSample: NumPy is not installed, of which a sample's image and results are arrays")
        self.function, self.workers = function, integer("workers", workers, 1, WORKERS_MAX)
        try:
            # By itself: multiprocessing's pickler sends tensors in files of /dev/shm.
            self.pickled = pickle.dumps(function)
        except Exception as error:
            raise TypeError(
                f"PerSample: {shown(function)} cannot be pickled, so no other process can have it: {error}. Define it "
                "at the top of a module"
            ) from None

    @staticmethod
    def apart(transform: Callable[[Any], Any] | PerSample | None) -> tuple[PerSample | None, Callable[[Any], Any] | None]:
        """A Loader's transform as a function of samples, or as one of batches."""
        return (transform, None) if isinstance(transform, PerSample) else (None, transform)

    def begin(
        self,
        torch: ModuleType | None,
        rest: Callable[[Any], Any] | None,
        job: dict[str, Any],
        rank: int,
        has_views: bool,
        path_of: PathOf,
    ) -> Ahead:
        """Starts the processes of a Loader: see `Ahead`. `rest` is what it does to its batches' images.

        Raises: ValueError: No function can get the samples of this job.
        """
        if rest is not None:
            raise ValueError(
                "decode: got ToTensor or Normalize before PerSample, but they are done to batches here: let the daemon do "
                'them with dtype="float32", or the function'
            )
        if "bfloat16" in (job["dtype"], *(kind.split("[")[0] for kind in job["fields"].values())):
            raise ValueError("transform: PerSample gets arrays of NumPy, which has no bfloat16: give float32 or float16")
        # Not above: it imports NumPy.
        from .ahead import Ahead

        return Ahead(self, torch, job, rank, has_views, path_of)

    def __repr__(self) -> str:
        return f"PerSample({shown(self.function)}, workers={self.workers})"
