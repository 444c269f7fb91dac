"""What frameworks need to train from a Loader, a module for each. They import the framework, `shade_load` does not."""

from __future__ import annotations

from ..loader import Loader
from ..plan import LEAVE_OUT


def check_epochs(loader: Loader, name: str) -> None:
    """Refuses, in the name of what needs it, a Loader whose epochs may have fewer batches than its length."""
    plan = loader._job["plan"]
    # In a mixture others come more often for what is left out.
    if plan["sampler"] in LEAVE_OUT and not plan["parts"]:
        raise ValueError(
            f"{name}: the sampler {plan['sampler']!r} leaves samples out, so epochs have fewer batches than "
            'len(loader), by which the framework finds their ends: choose another, such as "pads" or "echo", or '
            "iterate over the Loader in a loop of your own"
        )
