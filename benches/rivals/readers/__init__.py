"""A module for each reader. All deliver every record's bytes as they are, once, in batches.

`prepare(root, programs)` makes what it reads out of the ImageFolder ROOT/files: the folder ROOT/FOLDER.
`batches(root, workers, size)` is one epoch, of a ROOT that may be another name for the same: opens everything and
yields batches, sequences of anything that has bytes. `version(programs)` names what read."""
