"""The paper: its tables, reproduced from our own networks and held against the published numbers."""
