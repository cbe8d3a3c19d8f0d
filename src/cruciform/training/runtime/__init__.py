"""The processes of a run, how they communicate, and the signals that stop them."""
