"""Measurements of `shade-load doctor` that need Python: a DataLoader and shade, side by side."""
