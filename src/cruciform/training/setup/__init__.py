"""From recipe to objects: its data sets, its network, its precision."""
