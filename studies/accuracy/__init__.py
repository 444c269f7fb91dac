"""The accuracy study: what ways of choosing samples do to learning, per byte read."""
