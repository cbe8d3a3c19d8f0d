"""Reports: one HTML file about a network or a run."""
