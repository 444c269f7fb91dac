"""The experiment of SHADE's README, on one machine."""
