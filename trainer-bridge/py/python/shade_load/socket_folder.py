"""A folder for the sockets of daemons that only one command uses."""

from __future__ import annotations

import os
import tempfile

# Linux allows 107 bytes for a socket's path. The rest is the folder's own name and the socket's.
_PARENT_BYTES_MAX = 60


def socket_folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """In the temporary folder, or in /tmp where that one's path is too long for a socket in it."""
    parent = tempfile.gettempdir()
    is_short = len(os.fsencode(parent)) <= _PARENT_BYTES_MAX
    return tempfile.TemporaryDirectory(prefix=prefix, dir=parent if is_short else "/tmp")
