"""Training objectives, one file each. A new file here, or an entry point ``cruciform.objectives``, adds one."""
