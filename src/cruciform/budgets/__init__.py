"""Which basis for which layer, under a budget of measured time, MACs, parameters or bytes."""
