"""Deployment: the fastest exactly equal form of a network in an inference engine, found by measuring."""
