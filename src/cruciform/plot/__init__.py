"""Pictures. The only room that imports matplotlib, which comes with ``pip install 'cruciform[plot]'``."""
