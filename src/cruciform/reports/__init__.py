"""One HTML file about a network or a run: what it costs, what became of it, how it learnt, what it ships as."""
