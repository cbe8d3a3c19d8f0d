"""Whether an engine computes what PyTorch does, with a control that can fail."""
