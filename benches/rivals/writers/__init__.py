"""A module for each writer. All store the files' bytes as they are, with the label, in the order of torchvision.

`pack(source, out, programs, workers)` packs, the listing of the tree included. `version(programs)` names what packed.
`WANTS_FOLDER`: whether the folder OUT must be there before."""
