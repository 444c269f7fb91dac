"""What came: so many records of so many bytes, each page of each looked at."""

import zlib
from dataclasses import dataclass
from typing import Any

PAGE_BYTES = 4096


@dataclass
class Seen:
    """Equal for the same records in any order, and for hardly anything else."""

    records: int = 0
    bytes: int = 0
    # The sum of the records' checksums, each of the first byte of every page: little work, but every page is needed.
    touched: int = 0

    def touch(self, record: Any) -> None:
        """Looks at anything that has bytes."""
        view = memoryview(record)
        self.records += 1
        self.bytes += view.nbytes
        self.touched += zlib.crc32(view[::PAGE_BYTES].tobytes())
