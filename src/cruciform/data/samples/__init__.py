"""Samples: what a source is, how images are read and guarded, and their random numbers."""
