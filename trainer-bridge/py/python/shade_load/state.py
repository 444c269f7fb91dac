"""What `Loader.state_dict` gives, as far as it is checked before a daemon sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .options import plain, shown

STATE_VERSION = 3


def check_state(state: Any) -> None:
    """Refuses what `state_dict` of this version has not made."""
    if not isinstance(state, Mapping):
        raise ValueError(f"state: got {type(state).__name__}, expected the dict that Loader.state_dict() has given")
    version = plain(state.get("version"))
    if not isinstance(version, int) or version != STATE_VERSION:
        raise ValueError(
            f"state: got version {shown(version)}, expected {STATE_VERSION}: finish the training with the "
            f"version of shade_load that began it"
        )
    for name, kind in (("content_id", str), ("job", Mapping), ("daemon", bytes)):
        if not isinstance(state.get(name), kind):
            got = type(state[name]).__name__ if name in state else "nothing"
            raise ValueError(f"state: got {got} as {name!r}: it is no whole state of Loader.state_dict()")
    job = state["job"]
    named = {"tail", *(job["plan"] if isinstance(job.get("plan"), Mapping) else ())} if "tail" in job else set()
    if absent := {"sampler", "order", "seed", "tail", "weights_digest", "subset_digest"} - named:
        raise ValueError(f"state: its job has no {', '.join(sorted(absent))}: it is no whole state of Loader.state_dict()")
