"""What is compared: each row is a data loader, its data, and what DLIO is told besides its workload.

DLIO's workload `resnet50_h100` stays as MLPerf has it: batches of 400, 0.224 s of compute, 114,660
bytes a sample, 8 threads a rank, utilisation of 90 %."""

from __future__ import annotations

from dataclasses import dataclass

WORKLOAD = "resnet50_h100"
BATCH = 400
COMPUTE_SECONDS = 0.224
RECORD_BYTES = 114_660
TARGET_PERCENT = 90
SAMPLES_PER_FILE = 1_251

# Variants: DLIO as it is, a trainer that copies all bytes of its batches, and decoded images.
AS_IT_IS, TOUCHED, DECODED = "as it is", "touched", "decoded"
VARIANTS = (AS_IT_IS, TOUCHED, DECODED)


@dataclass(frozen=True)
class Row:
    """One data loader with its settings.

    `data` is its folder below the data's, `per_file` the samples in a file as DLIO counts. `only`
    is the variant it is for, if not for the first two. `forgets` is why its bytes cannot be touched.
    """

    title: str
    data: str
    options: tuple[str, ...]
    per_file: int = SAMPLES_PER_FILE
    only: str = ""
    forgets: str = ""

    def takes_part(self, variant: str) -> bool:
        """Whether it is measured in this variant."""
        if variant == DECODED or self.only:
            return self.only == variant
        return not (variant == TOUCHED and self.forgets)


PYTORCH = ("++workload.framework=pytorch", "++workload.reader.data_loader=pytorch")
FORGETS = "DLIO's reader drops the bytes of a batch and delivers a constant in their place"


def _shade(title: str, loader: str, only: str = "", data: str = "shade") -> Row:
    own = (
        f"++workload.reader.data_loader_classname={loader}",
        "++workload.reader.data_loader_sampler=iterative",
        "++workload.dataset.format=jpeg",
    )
    return Row(title, data, (*PYTORCH, *own), only=only)


def _dali(title: str, *options: str) -> Row:
    # Without a sampler DLIO fails: UnboundLocalError.
    own = ("++workload.framework=pytorch", "++workload.reader.data_loader=native_dali")
    return Row(title, "tfrecord", (*own, "++workload.reader.data_loader_sampler=iterative", *options))


def _pytorch(title: str, kind: str, threads: int, only: str = "", data: str = "npz") -> Row:
    own = (f"++workload.dataset.format={kind}", f"++workload.reader.read_threads={threads}")
    one = "++workload.dataset.num_samples_per_file=1"
    return Row(title, data, (*PYTORCH, *own, one), per_file=1, only=only, forgets=FORGETS)


ROWS = {
    "shade": _shade("shade, default options", "shade_load.integrations.dlio.ShadeDataLoader"),
    "shade-uncached": _shade("shade, cache=0", "benches.dlio.loaders.Uncached"),
    "tensorflow": Row("DLIO's TensorFlow, as in MLPerf", "tfrecord", (), forgets=FORGETS),
    "tensorflow-2": Row(
        "DLIO's TensorFlow, read_threads=2", "tfrecord", ("++workload.reader.read_threads=2",), forgets=FORGETS
    ),
    "tensorflow-32": Row(
        "DLIO's TensorFlow, read_threads=32, transfer_size=4 MiB",
        "tfrecord",
        ("++workload.reader.read_threads=32", "++workload.reader.transfer_size=4194304"),
        forgets=FORGETS,
    ),
    "dali": _dali("DLIO's DALI, as in MLPerf"),
    "dali-2": _dali("DLIO's DALI, read_threads=2, prefetch_size=4", *(
        "++workload.reader.read_threads=2",
        "++workload.reader.prefetch_size=4",
    )),
    "dali-read": _dali("DLIO's DALI, dont_use_mmap", "++workload.reader.dont_use_mmap=True"),
    "pytorch": _pytorch("DLIO's PyTorch, npz, 8 workers", "npz", 8),
    "pytorch-2": _pytorch("DLIO's PyTorch, npz, 2 workers", "npz", 2),
    "shade-decoded": _shade("shade, RandomResizedCrop(224)", "benches.dlio.loaders.Decoding", DECODED, "photos-shade"),
    "pytorch-decoded": _pytorch("DLIO's PyTorch, JPEG by Pillow, 2 workers", "jpeg", 2, DECODED, "photos"),
}
