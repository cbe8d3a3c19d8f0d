"""A run on disk: its directory, lock, checkpoints, log and identity."""
