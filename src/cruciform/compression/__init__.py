"""Compression of trained networks: fitted to what layers compute, without training."""
