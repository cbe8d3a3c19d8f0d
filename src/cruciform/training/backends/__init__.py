"""Backends, one file each: how the processes of a run are started. All call the same loop."""
