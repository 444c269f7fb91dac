"""Whether losses come, where the sampler draws by them."""

from __future__ import annotations

import warnings


class Reports:
    """The losses that a Loader's rank reports, as far as a warning needs them."""

    def __init__(self, are_needed: bool) -> None:
        # No warning that they are missing was given.
        self._are_needed = are_needed
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

    def check(self, are_missing: bool, sampler: str) -> None:
        """Warns once if no rank has reported a loss in the last epoch."""
        self.are_awaited = False
        if not are_missing:
            return
        self._are_needed = False
        warnings.warn(
            f"no loss was reported in the last epoch, but sampler {sampler!r} draws by losses: until losses are reported, "
            f"epochs are permutations. Call report(batch, losses) for each batch, or use plan=Plan(sampler=\"uniform\")",
            RuntimeWarning,
            stacklevel=4,
        )
