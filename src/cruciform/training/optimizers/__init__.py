"""Optimizers, one file each. A new file here, or an entry point ``cruciform.optimizers``, adds one."""
