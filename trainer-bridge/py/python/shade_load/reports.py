"""Whether losses come, where the sampler draws by them."""

from __future__ import annotations

import warnings
from typing import Any

from .mixture import samplers
from .plan import BY_LOSS


class Reports:
    """The losses that a Loader's rank reports, as far as a warning needs them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        by_losses = samplers(plan) & set(BY_LOSS)
        # The plan's own, or that of a dataset in a mixture.
        self._sampler = plan["sampler"] if plan["sampler"] in by_losses else min(by_losses, default=None)
        self._is_of_plan = self._sampler == plan["sampler"]
        # No warning that they are missing was given.
        self._are_needed = self._sampler is not None
        # This rank has reported since the last iteration began.
        self._has_come = False
        # If it has not, the next iteration asks whether any rank has.
        self.are_awaited = False

    def begin(self, is_first: bool) -> None:
        """An iteration has begun."""
        self.are_awaited = self._are_needed and not is_first and not self._has_come
        self._has_come = False

    def came(self, losses: int) -> None:
        """This rank has reported so many losses."""
        self._has_come |= losses > 0

    def check(self, are_missing: bool) -> None:
        """Warns once if no rank has reported a loss in the last epoch."""
        self.are_awaited = False
        if not are_missing:
            return
        self._are_needed = False
        own = f"leave out {self._sampler!r} behind its dataset in the mixture"
        remedy = 'use plan=Plan(sampler="uniform")' if self._is_of_plan else own
        warnings.warn(
            f"no loss was reported in the last epoch, but sampler {self._sampler!r} draws by losses: until losses are reported, "
            f"epochs are permutations. Call report(batch, losses) for each batch, or {remedy}",
            RuntimeWarning,
            stacklevel=4,
        )
