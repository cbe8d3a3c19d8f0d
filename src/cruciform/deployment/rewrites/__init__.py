"""Exact rewrites of a network's graph: the same function, other arithmetic."""
