"""The paper: its tables, reproduced from our own networks and compared with the published numbers."""
