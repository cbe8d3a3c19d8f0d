"""Where a run takes place: one process, torchrun's, or Ray's. One file each; all call the same loop."""
