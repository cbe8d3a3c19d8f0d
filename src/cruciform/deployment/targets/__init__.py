"""Targets: one file an engine."""
