"""The training loop, the step, and where they run."""
