"""Many runs: races of recipes, sweeps over settings."""
