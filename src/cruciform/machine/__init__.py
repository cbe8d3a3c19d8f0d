"""The machine: what its processor has instructions for, and how freed memory is kept."""
