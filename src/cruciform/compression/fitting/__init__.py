"""Plans fitted to the outputs of trained layers by second moments, without training."""
