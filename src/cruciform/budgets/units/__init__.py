"""What a budget can limit: one file a cost unit."""
