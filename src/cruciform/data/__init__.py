"""Images and volumes by number: sources, the order they are read in, what is done to each, and batches of them."""
