"""Exact rewrites of a network's graph: the same function with faster arithmetic."""
