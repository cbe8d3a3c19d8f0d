"""Lists the networks of all sources by name, for hints that need no library: ``src/cruciform/sources/names.json``.

    python benchmarks/list_networks.py       needs the extras zoo and volumes

``tests/contract/test_names.py`` fails where it should be run again.
"""

import json
from importlib.metadata import version
from pathlib import Path

from cruciform.sources.build_network import SOURCES
from cruciform.sources.network_names import ZOO, families

NAMES = Path(__file__).parents[1] / "src" / "cruciform" / "sources" / "names.json"


def main() -> None:
    order = [ZOO, *(source for source in SOURCES.names() if source != ZOO)]
    listed = {
        "versions": {source: version(source).partition("+")[0] for source in order if source != ZOO},
        "families": families(),
        "names": {source: SOURCES.get(source).names() for source in order},
    }
    NAMES.write_text(json.dumps(listed, indent=1) + "\n", "utf-8")
    print({source: len(names) for source, names in listed["names"].items()})


if __name__ == "__main__":
    main()
