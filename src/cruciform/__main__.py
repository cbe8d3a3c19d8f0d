"""Lets ``python -m cruciform`` do what the program ``cruciform`` does."""

from cruciform.cli.main import run

run()
