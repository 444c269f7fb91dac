"""The demo behind `make demo`: one training on a slow store, with a DataLoader and with shade."""
