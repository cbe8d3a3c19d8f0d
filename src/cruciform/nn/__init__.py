"""Layers that run plans: one module for any plan, its initialization, and its exactly equivalent forms."""
