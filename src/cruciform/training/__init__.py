"""Training from scratch: a recipe is data, one loop runs it anywhere, and a run that is killed loses nothing."""
