"""Hit ratios of policies, orders and presets, and stall, simulated. See benches/README.md."""
