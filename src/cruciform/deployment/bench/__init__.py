"""How much of the MAC saving turns into speed: suites, runs and result files."""
