"""Budgets: a scheme for every layer under limits of time, MACs, parameters or bytes."""
