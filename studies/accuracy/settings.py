"""What all runs have in common, whatever the recipe and cell."""

# The cache of a run.
CACHE = "20%"
# Seeds of a whole cell: 0 to 9.
SEEDS = 10
# The seed that is recorded, and played with other caches, policies and stores.
RECORDED_SEED = 0
CACHES = ("10%", "20%", "30%", "50%")
POLICIES = ("lookahead", "lru", "static")
# What the trainer of a simulation computes. Only ratios count.
SAMPLES_PER_SECOND = 1000
# What a store serves, over what the trainer computes.
RATES = (0.3, 0.5, 1.0)
