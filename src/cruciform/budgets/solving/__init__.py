"""Exact choices under limits, through SciPy; the only package that imports it."""
