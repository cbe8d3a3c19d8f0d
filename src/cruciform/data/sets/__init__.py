"""Data sets: one file a kind, each registers itself."""
