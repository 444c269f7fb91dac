"""What `decode` becomes in a job's document, checked as a Loader's is."""

from __future__ import annotations

import json
from typing import Any

from shade_load import _native
from shade_load.transforms import document


def views(decode: object) -> Any:
    """A list of transforms for each view, or "none"."""
    return json.loads(_native.job_document(json.dumps({"decode": document(decode)})))["decode"]


def view(decode: object) -> list[dict[str, Any]]:
    """The transforms of the only view."""
    (transforms,) = views(decode)
    return transforms
