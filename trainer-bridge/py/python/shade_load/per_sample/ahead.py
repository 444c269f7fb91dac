"""Batches whose samples a function of PerSample is called with: taken ahead, delivered in order.

One or two batches are in work while the trainer has another, so that processes have work until the
next is asked for. Rows are divided into pieces, which processes take as they get free: a slow sample delays
its batch and no process. A batch keeps its place in the ring until it is dropped, for its labels and
its report. Its records are copied once, to memory that the processes can read: they cannot map the
ring, which a successor of the daemon replaces, and which a trainer that keeps batches leaves.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from contextlib import suppress
from hashlib import blake2b
from itertools import accumulate
from struct import pack
from types import ModuleType
from typing import Any

import numpy as np

from .. import _native
from .._native import AnotherStart, LoaderTimeout, ShadeError
from ..fields import column
from ..timeouts import Patience
from .function import PathOf, PerSample
from .memory import Mapped, Outputs
from .pool import Pool, packed
from .results import ALIGN_BYTES, Form, write
from .worker import WANTED, Done, Failed, Message, Row

# Batches that are in work at a time.
_IN_WORK_MAX = 3
# The third is taken while fewer are kept in the ring, of whose room a trainer may keep half.
_KEPT_MAX = 3
# Pieces of a batch for each process.
_PIECES = 4
# How often the ring is looked at while fewer batches are in work than may be.
_LOOK_SECONDS = 0.01
# Samplers that draw a sample once in an epoch at most: its id tells it from all others.
_DRAW_ONCE = ("uniform", "sequential", "infobatch", "seta")
_KEY = b"shade sample v1"
_UNWANTED = b"\0"


class _InWork:
    """A batch that was taken from the ring."""

    def __init__(self, native: _native.Batch, ticket: int) -> None:
        self.native, self.ticket = native, ticket
        # What its images are like: with the same size, results have the same form.
        self.shapes = _shapes(native)
        # Where its inputs are in the file, once they are there; all of its places, with lengths.
        self.inputs: int | None = None
        self.places: list[tuple[int, int]] = []
        # Rows of which no message was made yet; messages to be sent; those without an answer.
        self.rows: list[Row] = []
        self.unsent: deque[tuple[int, int]] = deque()
        self.unanswered = 0
        self.failure: Failed | None = None
        self.is_wanted = True
        self.output: Mapped | None = None
        # The objects of its rows, for each column of objects.
        self.objects: list[list[Any]] = []


class Ahead:
    """The batches of one Loader, and the results of their samples.

    Args:
        per_sample: The function.
        torch: None if it is not installed: then results are arrays of NumPy.
        job: The job's document.
        rank: This process.
        has_views: A sample's image is a list of views.
        path_of: The original path of a sample, for messages.
    """

    def __init__(
        self,
        per_sample: PerSample,
        torch: ModuleType | None,
        job: dict[str, Any],
        rank: int,
        has_views: bool,
        path_of: PathOf,
    ) -> None:
        self._per_sample, self._torch, self._rank, self._path_of = per_sample, torch, rank, path_of
        self._seed, self._has_views = job["plan"]["seed"], has_views
        self._fields = tuple(job["fields"])
        # A short part of a mixture comes again in an epoch.
        self._draws_once = job["plan"]["sampler"] in _DRAW_ONCE and not job["plan"]["parts"]
        # Seconds that the trainer has waited for the function.
        self.wait_seconds, self._tickets, self._iteration = 0.0, 0, 0
        self._pool: Pool | None = None
        self.begin()

    def begin(self) -> None:
        """An iteration begins: the batches of another one are not wanted any more."""
        if self._pool is None:
            self._pool = Pool(self._per_sample)
            self._outputs = Outputs(self._pool.file)
            # What all results of samples of the same shapes have in common, once there is one.
            self._forms: dict[Any, Form] = {}
            # By ticket: those ahead, and those not wanted whose messages are not all answered.
            self._in_work: dict[int, _InWork] = {}
            # Those ahead, in order; behind them the epoch's end or what has ended it.
            self._ahead: deque[_InWork | ShadeError | None] = deque()
        self._abandon()
        self._is_over = False
        # Counts iterations, for a thread that waits in an earlier one.
        self._iteration += 1

    def next(self, session: _native.Session, patience: Patience, start: int) -> tuple[_native.Batch | None, Any]:
        """The next batch of the epoch with this start, and the results of its samples; none at the epoch's end.

        Raises:
            AnotherStart: Another iteration has begun meanwhile.
            ShadeError: The function has failed, or a process has ended; or there is no batch.
        """
        if self._pool is None:
            raise ShadeError("a wait for the function of PerSample was interrupted: begin another iteration")
        if not self._ahead:
            self._add(patience.next_batch(session, start))
        first = self._ahead[0]
        if isinstance(first, _InWork):
            self._finish(first, session, patience.seconds, start)
            if first.failure is not None:
                self._abandon()
                raise self._failed(first.failure)
        self._ahead.popleft()
        if isinstance(first, ShadeError):
            raise first
        if first is None:
            return None, None
        result = self._result(first)
        self._end(first)
        return first.native, result

    def close(self) -> None:
        """Ends the processes. Results that are kept stay valid."""
        pool, self._pool = self._pool, None
        self._ahead.clear()
        self._in_work.clear()
        if pool is not None:
            self._outputs.close()
            pool.close()

    def _add(self, native: _native.Batch | None) -> None:
        """A batch was taken, or the epoch's end."""
        if native is None:
            self._ahead.append(None)
            self._is_over = True
            return
        self._tickets += 1
        batch = _InWork(native, self._tickets)
        self._in_work[batch.ticket] = batch
        self._ahead.append(batch)

    def _finish(self, first: _InWork, session: _native.Session, timeout: float, start: int) -> None:
        """Waits until the first batch is done or has failed, `timeout` seconds for each answer, and takes more."""
        begun = last = time.monotonic()
        iteration = self._iteration
        try:
            while True:
                if iteration != self._iteration:
                    raise AnotherStart
                self._fill(session, start)
                self._give_work()
                if first.failure is not None or (first.unanswered == 0 and not first.rows):
                    return
                # The ring may have another batch meanwhile.
                seconds = min(_LOOK_SECONDS, timeout) if self._has_room(session) else timeout
                if answers := self._open.listen(seconds):
                    last = time.monotonic()
                    self._heed(answers)
                elif (waited := time.monotonic() - last) >= timeout:
                    at = ", ".join(map(str, self._open.at())) or "none"
                    raise LoaderTimeout(f"waited {waited:.1f} s for the function of PerSample, which is at samples {at}")
        except (AnotherStart, LoaderTimeout, Warning):
            # What the session warns of may be an error, by `warnings.simplefilter`: nothing is
            # lost.
            raise
        except BaseException:
            # A process has ended, and what it had is lost. Or this is Ctrl-C, perhaps in the middle
            # of a message. The next iteration starts others.
            self.close()
            raise
        finally:
            self.wait_seconds += time.monotonic() - begun

    @property
    def _open(self) -> Pool:
        if self._pool is None:
            raise ShadeError("the Loader is closed")
        return self._pool

    def _has_room(self, session: _native.Session) -> bool:
        """Whether another batch may be taken. What is kept beyond the ring's share would be copied."""
        count = len(self._ahead)
        return not self._is_over and (count < 2 or (count < _IN_WORK_MAX and session.held < _KEPT_MAX))

    def _fill(self, session: _native.Session, start: int) -> None:
        """Takes the batches that are there, as far as there is room."""
        while self._has_room(session):
            try:
                self._add(session.next(0.0, start))
            except LoaderTimeout:
                return
            except AnotherStart:
                raise
            except ShadeError as error:
                # In its turn.
                self._ahead.append(error)
                self._is_over = True

    def _give_work(self) -> None:
        """Gives the processes all that they can have."""
        for batch in self._ahead:
            if not isinstance(batch, _InWork):
                return
            if batch.inputs is None:
                self._bring(batch)
            if batch.rows and batch.failure is None:
                self._address(batch)
            assert batch.inputs is not None
            while batch.unsent and self._open.send(batch.inputs, *batch.unsent[0]):
                batch.unsent.popleft()
            if batch.unsent or batch.shapes not in self._forms:
                return

    def _bring(self, batch: _InWork) -> None:
        """Copies the samples of a batch to where processes can read them."""
        native, file = batch.native, self._open.file
        count, views = len(native), _views(native)
        contents: list[tuple[int, Any]] = []
        end, of_rows = ALIGN_BYTES, [[] for _ in range(count)]
        for view in views:
            whole = isinstance(view, np.ndarray)
            for row in range(count):
                shape, dtype = (view[row].shape, view[row].dtype.str) if not native.raw else ((len(view[row]),), "|u1")
                if not whole or row == 0:
                    contents.append((end, view if whole else view[row]))
                of_rows[row].append((end, shape, dtype))
                end += view[row].nbytes
            end = -(-end // ALIGN_BYTES) * ALIGN_BYTES
        inputs = self._take(batch, end)
        for place, content in contents:
            write(file.number, content, inputs + place)
        os.pwrite(file.number, WANTED, inputs)
        ids, labels, fields = native.ids().tolist(), native.labels().tolist(), self._fields_of(native)
        rows = zip(range(count), ids, labels, self._seeds(native, ids), of_rows, fields, strict=True)
        batch.rows, batch.inputs = [Row(*row) for row in rows], inputs

    def _address(self, batch: _InWork) -> None:
        """Makes messages of a batch's rows: of one of them only, before there is a result like theirs."""
        rows, native, form = batch.rows, batch.native, self._forms.get(batch.shapes)
        if form is None:
            if batch.unanswered > 0:
                return
            parts, rest, place = [rows[:1]], rows[1:], 0
        else:
            step = -(-len(rows) // (self._per_sample.workers * _PIECES))
            parts, rest = [rows[at : at + step] for at in range(0, len(rows), step)], []
            place = self._room(batch, form).place
        gives = "record" if native.raw else "views" if self._has_views or native.views > 1 else "image"
        messages = [packed(Message(batch.ticket, native.epoch, gives, part, len(native), form, place)) for part in parts]
        at = self._take(batch, sum(map(len, messages)))
        write(self._open.file.number, b"".join(messages), at)
        ends = list(accumulate(map(len, messages), initial=at))
        batch.unsent.extend((end - len(message), len(message)) for message, end in zip(messages, ends[1:], strict=True))
        batch.rows, batch.unanswered = rest, batch.unanswered + len(messages)

    def _room(self, batch: _InWork, form: Form) -> Mapped:
        """The memory of a batch's results."""
        if batch.output is None:
            batch.output = self._outputs.take(form.places(len(batch.native))[-1])
            objects = sum(not column.dtype for column in form.columns)
            batch.objects = [[None] * len(batch.native) for _ in range(objects)]
        return batch.output

    def _take(self, batch: _InWork, length: int) -> int:
        place = self._open.file.take(length)
        batch.places.append((place, length))
        return place

    def _heed(self, answers: list[Done | Failed]) -> None:
        """Takes what processes have answered."""
        for answer in answers:
            batch = self._in_work[answer.ticket]
            batch.unanswered -= 1
            if isinstance(answer, Failed):
                batch.failure = batch.failure or answer
            elif batch.is_wanted:
                self._keep(batch, answer)
            if batch.unanswered == 0 and not batch.is_wanted:
                self._end(batch)

    def _keep(self, batch: _InWork, answer: Done) -> None:
        """Keeps the objects of an answer. All else is in memory; of the first result of its form nothing is."""
        if answer.form is not None:
            form, [(row, values)] = answer.form, answer.parts
            assert batch.shapes not in self._forms, "only one sample of these shapes has no form"
            self._forms[batch.shapes] = form
            start = self._room(batch, form).place
            places = form.places(len(batch.native))
            for place, column, value in zip(places, form.columns, values, strict=False):
                if column.dtype:
                    write(self._open.file.number, value, start + place + row * column.row_bytes)
            objects = [value for column, value in zip(form.columns, values, strict=True) if not column.dtype]
            answer = Done(answer.ticket, [(row, objects)])
        for row, objects in answer.parts:
            for column, value in zip(batch.objects, objects, strict=True):
                column[row] = value

    def _result(self, batch: _InWork) -> Any:
        """The columns of a batch that is done."""
        assert batch.output is not None
        form = self._forms[batch.shapes]
        whole, count, objects = self._outputs.lease(batch.output), len(batch.native), iter(batch.objects)
        # Given back by its last array.
        batch.output, columns = None, []
        for place, column in zip(form.places(count), form.columns, strict=False):
            if not column.dtype:
                columns.append(next(objects))
                continue
            array = whole[place : place + count * column.row_bytes].view(column.dtype).reshape(count, *column.shape)
            columns.append(array if self._torch is None else self._torch.from_numpy(array))
        return form.joined(columns)

    def _abandon(self) -> None:
        """Nobody wants the batches ahead any more. Their memory is free once the processes have left them."""
        self._is_over = True
        batches = [batch for batch in self._ahead if isinstance(batch, _InWork)]
        self._ahead.clear()
        for batch in batches:
            batch.is_wanted = False
            if batch.inputs is not None:
                os.pwrite(self._open.file.number, _UNWANTED, batch.inputs)
            batch.unanswered -= len(batch.unsent)
            batch.unsent.clear()
            if batch.unanswered == 0:
                self._end(batch)

    def _end(self, batch: _InWork) -> None:
        """The processes have left the batch."""
        del self._in_work[batch.ticket]
        for place, length in batch.places:
            self._open.file.give_back(place, length)
        if batch.output is not None:
            self._outputs.give_back(batch.output)

    def _failed(self, failure: Failed) -> ShadeError:
        where = f"sample {failure.sample}"
        # The dataset may be gone or another one by now: that is not why the function failed.
        with suppress(Exception):
            where += f" ({self._path_of(failure.sample)})"
        return ShadeError(f"transform: the function of PerSample failed with {where}: {failure.text}")

    def _seeds(self, native: _native.Batch, ids: list[int]) -> list[int]:
        """A seed for each row. It does not depend on world and batch size where no sample comes twice."""
        start = pack("<QI", self._seed, native.epoch)
        if self._draws_once:
            keys = [pack("<q", sample) for sample in ids]
        else:
            uses: Counter[int] = Counter()
            keys = []
            for sample in ids:
                keys.append(pack("<qIII", sample, native.index, self._rank, uses[sample]))
                uses[sample] += 1
        return [int.from_bytes(blake2b(start + key, digest_size=8, person=_KEY).digest(), "little") for key in keys]

    def _fields_of(self, native: _native.Batch) -> list[dict[str, Any]]:
        has_views = self._has_views or native.views > 1
        columns = [_field(native, name, has_views) for name in self._fields]
        return [dict(zip(self._fields, values, strict=True)) for values in zip(*columns, strict=True)] or [{} for _ in range(len(native))]


def _shapes(native: _native.Batch) -> tuple[tuple[int, ...], ...] | None:
    """The shapes of a sample's images, by view; None if they differ within the batch, or are records."""
    if native.raw or native.ragged:
        return None
    return tuple(np.from_dlpack(native.images(view)).shape[1:] for view in range(native.views))


def _views(native: _native.Batch) -> list[Any]:
    """What a batch has, by view: an array of all rows, or a list with an array or a record of each."""
    if native.raw:
        return [native.memoryviews()]
    if native.ragged:
        return [[np.from_dlpack(native.image(row)) for row in range(len(native))]]
    return [np.from_dlpack(native.images(view)) for view in range(native.views)]


def _field(native: _native.Batch, name: str, has_views: bool) -> list[Any]:
    """An extra field of all rows: arrays, or what a batch has. What follows the image is a list of views as it is."""
    at, kind, follows = native.field(name)
    row = _native.field_row(kind)
    if row is None and not follows and "[" not in kind:
        return column(native, None, name, list)

    def of_view(view: int) -> list[Any]:
        if row is None:
            return list(np.from_dlpack(native.fixed_field(at, view)))
        number, shape = row
        values, counts = native.field_rows(at, view)
        rows = np.frombuffer(values, number).reshape(sum(counts), *shape)
        return np.split(rows, np.cumsum(counts)[:-1])

    if follows and has_views:
        return [list(views) for views in zip(*map(of_view, range(native.views)), strict=True)]
    return of_view(0)
