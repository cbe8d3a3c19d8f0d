"""The search for the fastest form of every layer, by measuring."""
