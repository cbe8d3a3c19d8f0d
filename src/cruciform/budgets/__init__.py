"""Budgets: a scheme for every layer under limits of measured time, MACs, parameters or bytes."""
