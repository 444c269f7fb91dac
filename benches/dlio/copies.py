"""A packed dataset again, with other names for its samples: they differ, and their bytes do not.

`shade-pack merge --link` then makes one dataset of several copies, whose shards are links. It takes
no path twice, so the copies need other paths. These stand in one section of the index
(formats/layout/INDEX.md), which the content id does not cover."""

from __future__ import annotations

import os
import struct
from pathlib import Path

INDEX = "dataset.shade"
HEADER_BYTES, ROW_BYTES = 64, 32
NAMES = 4
# CRC32C, Castagnoli's, with the bits of each byte reversed.
POLYNOMIAL = 0x82F63B78


def renamed(dataset: Path, out: Path, prefix: str, other: str) -> None:
    """Makes `out`: the dataset with `other` in place of `prefix` in all paths. Shards are linked."""
    if len(prefix) != len(other):
        raise ValueError(f"the prefixes {prefix!r} and {other!r} differ in length")
    out.mkdir(parents=True)
    for path in dataset.iterdir():
        if path.name == INDEX:
            (out / INDEX).write_bytes(_renamed(path.read_bytes(), prefix.encode(), other.encode()))
        else:
            os.link(path, out / path.name)


def _renamed(index: bytes, prefix: bytes, other: bytes) -> bytes:
    made = bytearray(index)
    (sections,) = struct.unpack_from("<I", made, 20)
    for row in range(HEADER_BYTES, HEADER_BYTES + sections * ROW_BYTES, ROW_BYTES):
        kind, _flags, offset, length = struct.unpack_from("<IIQQ", made, row)
        if kind == NAMES:
            names = bytes(made[offset : offset + length]).replace(prefix, other)
            made[offset : offset + length] = names
            struct.pack_into("<I", made, row + 24, crc32c(names))
    table = bytes(made[HEADER_BYTES : HEADER_BYTES + sections * ROW_BYTES])
    struct.pack_into("<I", made, 56, crc32c(table))
    struct.pack_into("<I", made, 60, crc32c(bytes(made[:60])))
    return bytes(made)


def crc32c(content: bytes) -> int:
    """The checksum, a byte at a time: names are a megabyte or two."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = [_entry(byte) for byte in range(256)]
