"""The loaders: how each packs an ImageFolder for a bucket, and an epoch of its records' bytes from there.

Each is set up as its documentation has it for object stores, shuffled, with two workers unless it says otherwise. A
module is imported by the function that needs it, so that one that is missing leaves out its loader alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benches.buckets.store import BUCKET

BATCH = 256
WORKERS = 2
# Worker processes with which a DataLoader has some requests in flight.
MANY_WORKERS = 32
# Eight tars of the records: each worker gets as many.
TARS = 8
SHUFFLE_BUFFER = 1_000

# Batches of records.
Epoch = Iterator[list[Any]]


@dataclass(frozen=True)
class Reader:
    """`pack` writes the files below `images` into the folder of a bucket; `epoch` reads from the endpoint.

    `shuffle` says how far a record may move."""

    title: str
    package: str
    folder: str
    shuffle: str
    pack: Callable[[Path, Path, Path], None]
    epoch: Callable[[str], Epoch]

    def version(self) -> str:
        return metadata.version(self.package)


def _pack_shade(images: Path, out: Path, programs: Path) -> None:
    subprocess.run([programs / "shade-pack", "create", "--quiet", "--no-sync", images, out], check=True)


def _shade(_endpoint: str) -> Epoch:
    from shade_load import Loader, Plan

    with Loader(f"s3://{BUCKET}/shade", BATCH, cache=0, plan=Plan(sampler="uniform")) as loader:
        for batch in loader:
            yield batch.records.memoryviews()


def _pack_webdataset(images: Path, out: Path, _programs: Path) -> None:
    import webdataset

    out.mkdir()
    files = sorted(images.rglob("*.jpg"))
    with webdataset.ShardWriter(str(out / "%06d.tar"), maxcount=-(-len(files) // TARS), verbose=0) as writer:
        # Dealt to the tars, so that each has samples of all classes.
        for file in (file for tar in range(TARS) for file in files[tar::TARS]):
            writer.write({"__key__": file.stem, "jpg": file.read_bytes()})


def _webdataset(endpoint: str) -> Epoch:
    """By curl, from addresses that are signed beforehand, as its own scheme for S3 starts the AWS CLI for each tar."""
    import boto3
    import webdataset

    client = boto3.client("s3", endpoint_url=endpoint)
    keys = [found["Key"] for found in client.list_objects_v2(Bucket=BUCKET, Prefix="webdataset/")["Contents"]]
    tars = [client.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": key}) for key in keys]
    samples = webdataset.WebDataset(tars, shardshuffle=len(tars)).shuffle(SHUFFLE_BUFFER)
    batches = samples.map(lambda sample: sample["jpg"]).batched(BATCH, collation_fn=list)
    yield from webdataset.WebLoader(batches, batch_size=None, num_workers=WORKERS)


def _pack_litdata(images: Path, out: Path, programs: Path) -> None:
    from benches.rivals.systems import litdata

    litdata.pack(images, out, programs, WORKERS)
    shutil.rmtree(out / "cache", ignore_errors=True)


def _litdata(_endpoint: str) -> Epoch:
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    # Its client of object stores refuses an address without TLS, and cannot be told otherwise.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"
    records = StreamingDataset(f"s3://{BUCKET}/litdata/chunks", shuffle=True)
    loader = StreamingDataLoader(records, batch_size=BATCH, num_workers=WORKERS, collate_fn=_images)
    yield from loader


def _pack_mosaicml(images: Path, out: Path, programs: Path) -> None:
    from benches.rivals.systems import mosaicml

    mosaicml.pack(images, out, programs, WORKERS)


def _mosaicml(_endpoint: str) -> Epoch:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    # A run before this one has left its shared memory.
    clean_stale_shared_memory()
    # Where it keeps what it has downloaded.
    local = tempfile.mkdtemp()
    records = StreamingDataset(remote=f"s3://{BUCKET}/mosaicml", local=local, shuffle=True, batch_size=BATCH)
    for stream in records.streams:
        # It has read the index, and both workers would inherit its connection: their answers were
        # mixed, or came after 60 s. A client of their own is what they make without one.
        stream._downloader.clean_up()
    yield from DataLoader(records, BATCH, num_workers=WORKERS, collate_fn=_images)


def _images(samples: list[dict[str, Any]]) -> list[bytes]:
    return [sample["image"] for sample in samples]


def _copy_files(images: Path, out: Path, _programs: Path) -> None:
    shutil.copytree(images, out)


def _s3_connector(workers: int) -> Callable[[str], Epoch]:
    def epoch(endpoint: str) -> Epoch:
        import boto3
        from s3torchconnector import S3ClientConfig, S3MapDataset
        from torch.utils.data import DataLoader

        # Its own way to list sends an empty delimiter, of which the test's server makes a prefix.
        pages = boto3.client("s3", endpoint_url=endpoint).get_paginator("list_objects_v2")
        found = [each["Key"] for page in pages.paginate(Bucket=BUCKET, Prefix="files/") for each in page["Contents"]]
        objects = S3MapDataset.from_objects(
            [f"s3://{BUCKET}/{key}" for key in found],
            region="us-east-1",
            endpoint=endpoint,
            transform=lambda reader: reader.read(),
            s3client_config=S3ClientConfig(force_path_style=True),
        )
        yield from DataLoader(objects, BATCH, shuffle=True, num_workers=workers, collate_fn=list)

    return epoch


GLOBAL = "the whole dataset"
CONNECTOR = ("s3torchconnector", "files", GLOBAL, _copy_files)
READERS = {
    "shade": Reader("shade", "shade_load", "shade", GLOBAL, _pack_shade, _shade),
    "litdata": Reader("LitData", "litdata", "litdata", "order of chunks, and within a chunk", _pack_litdata, _litdata),
    "mosaicml": Reader(
        "MosaicML Streaming",
        "mosaicml-streaming",
        "mosaicml",
        "blocks of 262,144 records: here the whole dataset",
        _pack_mosaicml,
        _mosaicml,
    ),
    "webdataset": Reader(
        "WebDataset",
        "webdataset",
        "webdataset",
        f"order of tars, and a buffer of {SHUFFLE_BUFFER:,} in each worker",
        _pack_webdataset,
        _webdataset,
    ),
    "s3torchconnector": Reader("s3torchconnector, 2 workers", *CONNECTOR, _s3_connector(WORKERS)),
    "s3torchconnector-32": Reader("s3torchconnector, 32 workers", *CONNECTOR, _s3_connector(MANY_WORKERS)),
}


def main() -> int:
    """`python -m benches.buckets.readers NAME ENDPOINT`: one epoch in this process, as JSON."""
    import json
    import os
    import time
    from dataclasses import asdict

    from benches.rivals.delivered import Delivered

    name, endpoint = sys.argv[1:]
    # What all of them import is not what is measured.
    import torch  # noqa: F401

    reader = READERS[name]
    try:
        version = reader.version()
        __import__(reader.package.removeprefix("mosaicml-"))
    except (ImportError, metadata.PackageNotFoundError) as error:
        print(f"does not import: {error}", file=sys.stderr)
        return 1
    delivered, first = Delivered(), 0.0
    started = time.perf_counter()
    for batch in reader.epoch(endpoint):
        first = first or time.perf_counter() - started
        for record in batch:
            delivered.add(record)
    seconds = time.perf_counter() - started
    told = {"seconds": seconds, "first_seconds": first, "delivered": asdict(delivered), "version": version}
    print(json.dumps(told), flush=True)
    # Not the time that it takes to take PyTorch apart.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
