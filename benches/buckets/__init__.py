"""Reading from a bucket, beside other loaders and with caches: `python -m benches.buckets`."""
