"""For machines with a CUDA build of torchvision beside a CPU build of torch, which can't be imported as it is.

    PYTHONPATH=tests/shim python examples/convert_resnet.py

Only for tests and development: with builds that belong together none of this is needed.
"""

import warnings

from cruciform.coverage.worker import load_torchvision

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    load_torchvision()
