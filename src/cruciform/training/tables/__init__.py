"""Typed tables: the base of recipe tables, patterns of parameter names."""
