"""Samples: sources, image decoding limits, keyed random numbers."""
