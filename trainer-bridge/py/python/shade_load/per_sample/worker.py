"""A process that calls a function with samples.

All processes of a Loader take their tasks from one pipe, so the next is for a process that is free.
The system gives a task, which is shorter than a page, whole to one of them. It says where in the
shared file a message lies, and the message where the samples' bytes lie. Results are written to the
file. What is no array comes back through a pipe of the process's own.
"""

from __future__ import annotations

import os
import pickle
import random
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import connection, parent_process
from typing import Any, NamedTuple

import numpy as np

from .function import Sample
from .memory import SharedFile
from .results import Form, taken_apart, write

# Places of a batch's inputs and of a message in the file, and the message's length.
TASK = struct.Struct("<QQQ")
# The sample that a process is at: its id + 1, or 0.
AT = struct.Struct("<Q")
# The first byte of a batch's inputs while it is wanted.
WANTED = b"\1"


class Row(NamedTuple):
    """One sample of a message. Places count from where the batch's inputs begin."""

    row: int
    id: int
    label: int
    seed: int
    # (place, shape, NumPy's type) of each view's image, or of the record.
    views: list[tuple[int, tuple[int, ...], str]]
    fields: dict[str, Any]


class Message(NamedTuple):
    """Some rows of a batch."""

    ticket: int
    epoch: int
    # "record", "image" or "views".
    gives: str
    rows: list[Row]
    # Rows of the whole batch; the form of its results, but not for the first one; their place.
    batch_rows: int
    form: Form | None
    place: int


# glibc keeps what it is given back up to the largest block so far, of at most 32 MiB.
KEPT_BYTES = 31 << 20


class Done(NamedTuple):
    """The answer to a message. Of each row, the objects of its result; before there is a form, all parts."""

    ticket: int
    parts: list[tuple[int, list[Any]]]
    # That of the first result.
    form: Form | None = None


class Failed(NamedTuple):
    """The answer to a message whose function failed, or that gave a result of another form."""

    ticket: int
    sample: int
    text: str


class Unusable(NamedTuple):
    """The function cannot be unpickled here."""

    text: str


def serve(function: bytes, number: int, tasks: Any, answers: Any, file: SharedFile) -> None:
    """The life of process `number`: it ends with the Loader, or with the process that has it."""
    # Ctrl-C is for the trainer, which ends its processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        call = pickle.loads(function)
    except Exception:
        answers.send(Unusable(traceback.format_exc()))
        return
    # From its largest block that was given back the C library learns how much to keep for the next:
    # else each sample's memory is given back, and comes page by page again.
    bytes(KEPT_BYTES)
    worker = _Worker(call, number, file.number)
    while task := os.read(tasks.fileno(), TASK.size):
        inputs, place, length = TASK.unpack(task)
        message = pickle.loads(os.pread(file.number, length, place))
        try:
            answers.send_bytes(_pickled(worker.answer(message, inputs), message))
        except BrokenPipeError:
            return


def _pickled(answer: Done | Failed, message: Message) -> bytes:
    """The answer's bytes; that it failed, if an object of a result has none.

    Not `send`, by which tensors would go as descriptors of shared memory.
    """
    try:
        return pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        first, last = message.rows[0].id, message.rows[-1].id
        text = f"a result cannot be pickled ({type(error).__name__}: {error}), of a sample from {first} to {last} of its batch"
        return pickle.dumps(Failed(message.ticket, first, text))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


class _Worker:
    """Calls the function."""

    def __init__(self, function: Callable[[Sample], Any], number: int, file: int) -> None:
        self._function, self._file = function, file
        self._at = number * AT.size
        self._torch: Any = None

    def answer(self, message: Message, inputs: int) -> Done | Failed:
        """Calls the function with each row, while the batch is wanted."""
        parts = []
        for row in message.rows:
            if os.pread(self._file, 1, inputs) != WANTED:
                break
            os.pwrite(self._file, AT.pack(row.id + 1), self._at)
            try:
                form, result = self._result(message, row, inputs)
            except (Exception, SystemExit) as error:
                # Without the frame of this file.
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                [*_, last] = traceback.format_exception_only(error)
                return Failed(message.ticket, row.id, f"{last}\n{''.join(traceback.format_exception(error))}")
            finally:
                os.pwrite(self._file, AT.pack(0), self._at)
            if message.form is None:
                return Done(message.ticket, [(row.row, result)], form)
            if form != message.form:
                text = (
                    f"it returned {form}, and {message.form} before: all results of arrays have one shape and type. Pad "
                    "or crop it, or return it in a list, which is pickled"
                )
                return Failed(message.ticket, row.id, text)
            parts.append((row.row, self._written(message, row.row, result)))
        return Done(message.ticket, parts)

    def _result(self, message: Message, row: Row, inputs: int) -> tuple[Form, list[Any]]:
        if message.gives == "record":
            [(place, (length,), _)] = row.views
            given = {"record": os.pread(self._file, length, inputs + place)}
        else:
            read = [self._array(inputs + place, shape, dtype) for place, shape, dtype in row.views]
            given = {"image": read if message.gives == "views" else read[0]}
        sample = Sample(row.id, row.label, message.epoch, row.seed, row.fields, **given)
        self._seed(row.seed)
        return taken_apart(self._function(sample))

    def _written(self, message: Message, row: int, parts: list[Any]) -> list[Any]:
        """Writes the arrays of a result, and gives its objects."""
        assert message.form is not None
        places, objects = message.form.places(message.batch_rows), []
        for place, column, part in zip(places, message.form.columns, parts, strict=False):
            if column.dtype:
                write(self._file, part, message.place + place + row * column.row_bytes)
            else:
                objects.append(part)
        return objects

    def _array(self, place: int, shape: tuple[int, ...], dtype: str) -> Any:
        array = np.empty(shape, dtype)
        view = memoryview(array.reshape(-1).view(np.uint8))
        while len(view) > 0:
            read = os.preadv(self._file, [view], place)
            assert read > 0, f"the shared file ends at {place}"
            view, place = view[read:], place + read
        return array

    def _seed(self, seed: int) -> None:
        """Seeds the generators that transforms draw from."""
        random.seed(seed)
        np.random.seed(seed % (1 << 32))
        torch = sys.modules.get("torch")
        if torch is None:
            return
        if self._torch is None:
            # There is a process for each processor.
            torch.set_num_threads(1)
            self._torch = torch
        # Not `manual_seed`, which looks for other devices.
        torch.default_generator.manual_seed(seed)

