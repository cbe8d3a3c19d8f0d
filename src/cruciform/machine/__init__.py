"""This machine: processor features, and memory settings."""
