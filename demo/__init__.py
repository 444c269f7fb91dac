"""The demo behind `make demo`: a small CNN trained twice over a simulated store."""
