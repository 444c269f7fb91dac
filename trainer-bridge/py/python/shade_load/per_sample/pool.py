"""The processes of a Loader: they are started, given messages, listened to, and ended."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from multiprocessing import connection
from typing import Any

from .._native import ShadeError
from .function import PerSample
from .memory import SharedFile
from .worker import AT, TASK, Done, Failed, Message, Unusable, serve

HINT = (
    "its function must be of a module that other processes can import, or of a script whose training is below "
    'if __name__ == "__main__"'
)


class Pool:
    """Processes that wait for messages.

    A server process without threads forks them, which has imported the script once.
    """

    def __init__(self, per_sample: PerSample) -> None:
        context = multiprocessing.get_context("forkserver")
        # A forked child of this process has copies of all this, and may end nothing.
        self._owner = os.getpid()
        self.file = SharedFile()
        tasks, self._tasks = context.Pipe(duplex=False)
        # A full pipe must not stop this process, for which processes may be waiting.
        os.set_blocking(self._tasks.fileno(), False)
        self._processes: dict[Any, tuple[int, Any]] = {}
        try:
            for number in range(per_sample.workers):
                answers, theirs = context.Pipe(duplex=False)
                arguments = (per_sample.pickled, number, tasks, theirs, self.file)
                process = context.Process(target=serve, args=arguments, name=f"shade-per-sample-{number}", daemon=True)
                process.start()
                theirs.close()
                self._processes[answers] = (number, process)
        except BaseException:
            self.close()
            raise
        finally:
            tasks.close()

    def send(self, inputs: int, place: int, length: int) -> bool:
        """Gives a message to the process that is free first. False: the pipe is full, or no process is left."""
        try:
            os.write(self._tasks.fileno(), TASK.pack(inputs, place, length))
        except (BlockingIOError, BrokenPipeError):
            return False
        return True

    def listen(self, seconds: float | None) -> list[Done | Failed]:
        """The answers that are there, or come within this time; None: at least one.

        Raises: ShadeError: A process has ended, cannot have the function, or has given what cannot be read.
        """
        answers = []
        for answering in connection.wait(list(self._processes), seconds):
            assert isinstance(answering, connection.Connection)
            try:
                answer = answering.recv()
            except (EOFError, OSError):
                raise ShadeError(self._death(*self._processes[answering])) from None
            except Exception as error:
                text = f"a result cannot be unpickled: {type(error).__name__}: {error}"
                raise ShadeError(f"transform: PerSample: {text}") from error
            if isinstance(answer, Unusable):
                raise ShadeError(f"transform: PerSample: {HINT}\n\n{answer.text}")
            answers.append(answer)
        return answers

    def at(self) -> list[int]:
        """The samples that processes are at."""
        found = os.pread(self.file.number, AT.size * len(self._processes), 0)
        return [at - 1 for (at,) in AT.iter_unpack(found) if at > 0]

    def _death(self, number: int, process: Any) -> str:
        """What is known of the end of a process."""
        process.join()
        code, [at] = process.exitcode, AT.unpack(os.pread(self.file.number, AT.size, number * AT.size))
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        where = f"at sample {at - 1}" if at > 0 else "between two samples" if code < 0 else f"before a sample: {HINT}"
        return f"transform: process {process.pid} of PerSample {how} {where}. The next iteration starts others"

    def close(self) -> None:
        """Ends the processes, whatever they are at. Results that are mapped stay."""
        if os.getpid() != self._owner:
            return
        self._tasks.close()
        for _, process in self._processes.values():
            process.kill()
        for answers, (_, process) in self._processes.items():
            process.join()
            process.close()
            answers.close()
        self._processes.clear()
        self.file.close()


def packed(message: Message) -> bytes:
    """A message's bytes."""
    return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
