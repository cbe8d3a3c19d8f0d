"""Recipes: all that decides what a run computes, as typed data."""
