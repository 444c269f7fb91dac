"""Where a Loader is: its epoch, and the next batch of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Position:
    """The position in a Loader's epochs. What may fail comes before a change: a failure changes nothing."""

    # The current epoch or, between epochs, the next one.
    epoch: int = 0
    # What `set_epoch` has chosen for the next iteration while one was under way.
    chosen: int | None = None
    # Its next undelivered batch, for a checkpoint.
    batch: int = 0
    # First batch of the next iteration: not 0 only after a state was loaded.
    resume_at: int = 0
    # The epoch that was resumed, and its batches: another number than usual if it was begun with
    # another batch size or world size.
    resumed: tuple[int, int] | None = None
    # Counts iterations, so that an old iterator cannot take batches from a newer one.
    iteration: int = 0
    # The session's number of the last start: an iterator that waits takes batches of no later one.
    start: int = 0
    # There is an iterator that has given nothing yet.
    is_unbegun: bool = False

    def batches(self, per_epoch: int) -> int:
        """Batches of the epoch, where one has `per_epoch` that was not resumed."""
        resumed, of_resumed = self.resumed or (None, 0)
        batches = of_resumed if resumed == self.epoch else per_epoch
        # Where all are delivered and another epoch is chosen, those of that one.
        return per_epoch if self.batch >= batches and self.chosen not in (None, resumed) else batches

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch: where it is already, or at the first batch of another."""
        if self.batch > self.resume_at:
            # An iteration has given batches and may go on: a state is of its epoch until another
            # begins.
            self.chosen = epoch
        elif epoch != self.epoch:
            self.epoch = epoch
            self.resume_at = self.batch = 0

    def next_epoch(self, batches: int) -> int:
        """The epoch of the next iteration, where the current one has `batches`."""
        if self.chosen is not None:
            return self.chosen
        # All was delivered, to a loop that counts batches and asks for no more, as Lightning's.
        is_delivered = self.resume_at == 0 and 0 < batches <= self.batch
        return self.epoch + is_delivered

    def begin(self, epoch: int, start: int) -> None:
        """An iteration over `epoch` has begun, with this start."""
        self.epoch, self.batch, self.chosen = epoch, self.resume_at, None
        if self.resumed is not None and self.resumed[0] != epoch:
            self.resumed = None
        self.is_unbegun = True
        # In this order: who finds the new start finds the new iteration.
        self.iteration += 1
        self.start = start

    def deliver(self, batch: int) -> None:
        """The iteration has given this batch."""
        self.is_unbegun = False
        self.resume_at = 0
        self.batch = batch + 1

    def end(self) -> None:
        """The iteration has given all."""
        self.is_unbegun = False
        self.resume_at = self.batch = 0
        self.epoch = self.epoch + 1 if self.chosen is None or self.chosen == self.epoch else self.chosen
        self.chosen = None

    def load(self, epoch: int, batch: int, batches: int) -> None:
        """A state was loaded: an iterator that has given nothing goes on there, others are of an earlier iteration."""
        self.epoch, self.batch, self.resume_at, self.chosen = epoch, batch, batch, None
        self.resumed = (epoch, batches)
        self.iteration += not self.is_unbegun
