"""What a network would cost to train on many machines: arithmetic, on stated assumptions."""
