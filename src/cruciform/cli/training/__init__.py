"""Commands about training and its data."""
