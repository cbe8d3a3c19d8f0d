"""Shipping a network: every exactly equal form of it, in every engine, and the fastest one chosen by measuring."""
