"""Instruments: what a network costs, and whether it can be trained."""
