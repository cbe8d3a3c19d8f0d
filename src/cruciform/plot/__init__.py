"""Plots. The only package that imports matplotlib, which comes with ``pip install 'cruciform[plot]'``."""
