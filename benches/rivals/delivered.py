"""What a loader delivered: how many records, their bytes, and a checksum over all of them."""

import zlib
from dataclasses import dataclass
from typing import Any

PAGE_BYTES = 4096


@dataclass
class Delivered:
    """Equal for the same records in any order, and for hardly anything else."""

    records: int = 0
    bytes: int = 0
    # The sum of the records' checksums, each over the first byte of every page: little work, but
    # every page is needed.
    checksum: int = 0

    def add(self, record: Any) -> None:
        """Looks at a record, which is anything that has bytes."""
        view = memoryview(record)
        self.records += 1
        self.bytes += view.nbytes
        self.checksum += zlib.crc32(view[::PAGE_BYTES].tobytes())
