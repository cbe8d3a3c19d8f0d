"""Compression of trained networks: chosen by measured time, fitted to what they compute, without training."""
