"""Where the loop runs: its processes, how they agree, and the signals that end them."""
