"""A real S3 server for tests and benches, over a folder whose folders are its buckets: `shade-test-bucket`."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

KEY_ID, SECRET = "shade", "a secret of shade's tests"


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self.orders, self.answers = process.stdin, process.stdout
        self.endpoint = self.answers.readline().strip()

    def environment(self, cache: Path, scheme: str = "s3") -> dict[str, str]:
        """The variables by which programs find it. They keep what they know of its objects in `cache`.

        With an emulator behind it its addresses are those of `scheme`: az:// or gs://.
        """
        variables = {"XDG_CACHE_HOME": str(cache)}
        match scheme:
            case "az":
                key = base64.b64encode(SECRET.encode()).decode()
                variables |= {"AZURE_STORAGE_ACCOUNT_NAME": KEY_ID, "AZURE_STORAGE_ACCOUNT_KEY": key}
                variables |= {"AZURE_STORAGE_ENDPOINT": f"{self.endpoint}/{KEY_ID}"}
            case "gs":
                # Its keys are in the environment: none.
                variables |= {"GOOGLE_BASE_URL": self.endpoint}
            case _:
                variables |= {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
                variables |= {"AWS_ENDPOINT_URL": self.endpoint}
        return variables

    def be(self, how: str = "") -> int:
        """Makes it as bad as `how` says; the requests so far."""
        print(how, file=self.orders, flush=True)
        return int(self.answers.readline().split()[0])


@contextmanager
def served(program: Path, root: Path, *words: str, within: Sequence[str] = ()) -> Iterator[Server]:
    """A server of the buckets in `root`. `words` are its KEY=VALUE; `within` is a command that runs it elsewhere."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*within, program, root, *words], stdin=pipe, stdout=pipe, text=True) as process:
        server = Server(process)
        try:
            yield server
        finally:
            # It ends with its input.
            server.orders.close()
