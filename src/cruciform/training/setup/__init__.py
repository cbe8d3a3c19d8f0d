"""What a recipe names, made real: its data, its network, its precision."""
