"""`Loader(transform=PerSample(function, workers=4))`: a Python function on each sample, in processes.

`function.py` has what the user gives and gets. The trainer's side: `ahead.py` takes batches ahead and
delivers their results in order, `pool.py` has the processes, `memory.py` the memory that all share.
The processes' side is `worker.py`; `results.py` is what both know of a function's results.
"""
