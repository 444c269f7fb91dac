"""What several nodes that train together read and wait, simulated."""
