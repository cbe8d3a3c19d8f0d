"""Conversion: any network, its convolutions replaced by what a plan computes, with a report of every one."""
