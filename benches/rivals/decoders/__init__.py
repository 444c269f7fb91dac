"""A module for each contender. All deliver every sample of an ImageFolder once an epoch, decoded, in batches.

`prepare(root, programs, kind)` makes what it reads out of the ImageFolder ROOT/files: the folder ROOT/FOLDER.
`epochs(root, workers, size, kind)` opens it and yields epoch after epoch, as many as are asked for. An epoch is an
iterator of batches: images, uint8 and contiguous, channels last (N H W 3) or first (N 3 H W) as it suits the
contender, and their labels. A batch is valid until the next is asked for. `version(programs)` names what decoded."""

from collections.abc import Iterator

import numpy

Batch = tuple[numpy.ndarray, numpy.ndarray]
Epochs = Iterator[Iterator[Batch]]
