"""One module for each rival, and two for shade: what each can do. `table.py` says which function
makes which row.

Every module has `version(programs)`, the version that a record keeps. Beyond that it has some of
these:

- `pack(source, out, programs, workers)` packs an ImageFolder into the folder `out`, which it makes.
  It stores the bytes of the files and the label.
- `prepare...(root, programs)` makes a folder below `root` out of the ImageFolder `root`/files, and
  returns its name. For decoding it also takes the `Kind` of the images.
- `read...(root, workers, size, keep)` yields epochs of batches of records. A record is anything
  that has bytes. `keep`: a system with a cache of its own may keep the records there.
- `decode...(root, workers, size, kind)` yields epochs of batches of images and labels. Images are
  uint8 and contiguous, with the channels last (N H W 3) or first (N 3 H W). A system that leaves
  decoding to its user also takes `decode_image(record)`.
- `recipe(root, workers, size, kind)` does as `decode`, but images are a list of the recipe's views,
  each float32 with the channels first (N 3 H W).
- `train...(root, workers)` yields epochs of batches of images and labels on the GPU.

The clock runs from the call on. So everything that the call needs is imported with the module.
`root` may be another name of the folder that was prepared. Whoever takes the epochs says when to
stop. An epoch is an iterator of batches, and a batch is valid until the next one is asked for."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

# Images and labels, NumPy's arrays. A recipe's images are a list of views.
Batch = tuple[Any, Any]
RecordEpochs = Iterator[Iterator[Iterable[Any]]]
ImageEpochs = Iterator[Iterator[Batch]]
# Decodes a record, crops and resizes it as its `Kind` says. With `into` it writes the image there.
DecodeImage = Callable[..., Any]


class DecodedSamples:
    """Goes before a system's own dataset class: decodes the image of each sample."""

    decode_image: DecodeImage

    def __getitem__(self, at: Any) -> tuple[Any, int]:
        sample = super().__getitem__(at)  # type: ignore[misc]
        return self.decode_image(sample["image"]), sample["label"]
