"""Layers that run plans: one module for any plan, its initialisation, and its exactly equal forms."""
