"""The public verbs: one small file each. Heavy packages are imported inside the functions."""
