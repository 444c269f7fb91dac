"""What policies, orders and presets hit, and how long training waits: README.md of benches/ says how."""
