"""The child process: reads a request a line, writes a finding a line. A crash takes only the one network along.

Run by ``cruciform.coverage.coverage_run``; torchvision of a CUDA build beside a CPU build of torch lacks two operators,
which are declared here, and only here, so that it can be imported.
"""

import json
import os
import sys
import warnings

import torch

from cruciform.errors import CruciformError

_DECLARED: list[torch.library.Library] = []  # declarations live as long as what made them


def load_torchvision() -> None:
    """Load torchvision, where it is installed; declare its two compiled operators first if they are missing."""
    try:
        import torchvision
    except ImportError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.startswith("torchvision")]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _DECLARED.append(library)
        import torchvision  # noqa: F401


def main() -> None:
    """Answer requests until standard input ends."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is not an answer
    load_torchvision()
    from cruciform.coverage.examine import examine
    from cruciform.sources.network_library import SOURCES  # filled by what examine imports

    if sys.argv[1:2] == ["--list"]:
        try:
            references = [f"{source}:{name}" for source in sys.argv[2:] for name in SOURCES.get(source).names()]
        except CruciformError as error:
            sys.exit(str(error))  # the parent passes it on
        print(json.dumps(references), file=answers)
        return
    for line in sys.stdin:
        request = json.loads(line)
        finding = examine(request["reference"], request["scheme"], backward=request["backward"])
        print(json.dumps(finding.to_dict()), file=answers, flush=True)


if __name__ == "__main__":
    main()
