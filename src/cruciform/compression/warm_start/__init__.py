"""Where low-rank training starts from a dense network: converted by one scheme, and fitted to what it computes."""
