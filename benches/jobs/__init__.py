"""What several trainings on one machine read, simulated."""
