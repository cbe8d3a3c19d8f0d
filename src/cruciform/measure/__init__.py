"""Measurements: MACs and parameters, gradients, filters, latency."""
