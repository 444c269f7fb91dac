"""What the loaders read: records of 110 KB in each loader's own format, in one bucket of a server that is far away."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.rivals.delivered import Delivered
from studies.bucket import KEY_ID, SECRET, Server, served

BUCKET = "records"
RECORD_BYTES = 110_000
CLASSES = 10
# Lognormal latencies, and one request in a thousand that takes a second more.
SLOWNESS = "latency_ms=30 slow=0.001"
# What the loaders of other projects call the settings that AWS's tools read.
ALIASES = {"S3_ENDPOINT_URL": "AWS_ENDPOINT_URL"}


def write_records(folder: Path, records: int) -> Delivered:
    """An ImageFolder of files that begin like JPEGs and are noise, and what a loader of all of them delivers."""
    draw, expected = random.Random(0), Delivered()
    for number in range(records):
        content = b"\xff\xd8\xff\xe0" + draw.randbytes(RECORD_BYTES - 4)
        expected.add(content)
        path = folder / f"{number % CLASSES}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return expected


@contextmanager
def far_away(programs: Path, folder: Path, root: Path) -> Iterator[Server]:
    """A server with the files of `folder` in its bucket, which it keeps below `root`. Its answers are late.

    Files are put there through the server. It would compute the ETag of others at each request."""
    import boto3
    from botocore.config import Config

    (root / BUCKET).mkdir(parents=True)
    with served(programs / "shade-test-bucket", root) as server:
        keys = {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        plain = Config(request_checksum_calculation="when_required")
        client = boto3.client("s3", endpoint_url=server.endpoint, config=plain, **keys)
        for file in (path for path in sorted(folder.rglob("*")) if path.is_file()):
            with file.open("rb") as content:
                client.put_object(Bucket=BUCKET, Key=str(file.relative_to(folder)), Body=content)
        server.be(SLOWNESS)
        yield server


def environment(server: Server, home: Path, programs: Path) -> dict[str, str]:
    """All variables of a process that finds the server, and has nothing from earlier runs."""
    mine = server.environment(home / "cache")
    mine |= {alias: mine[name] for alias, name in ALIASES.items()}
    mine |= {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "TMPDIR": str(home), "HOME": str(home)}
    mine |= {"SHADE_LOAD_BIN": str(programs / "shade-load"), "SHADE_PACK_BIN": str(programs / "shade-pack")}
    return {**os.environ, **mine}


def last_json(text: str) -> dict[str, object]:
    """The JSON of a process's last line."""
    return json.loads(text.splitlines()[-1])
