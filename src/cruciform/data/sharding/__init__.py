"""Shards: their index, and the storage that they are read from."""
