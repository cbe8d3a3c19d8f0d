"""Shards: written, indexed, verified, and read from wherever they are stored."""
