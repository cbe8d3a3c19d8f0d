"""Writes requirements.lock: every package that a release is built and tested with, its version, and all its checksums.

    python .ci/lock.py            asks the index that pip is set to; its address goes into no file

Versions are those installed in this environment, of everything that the library, its training and its checks stand on.
``pip install --require-hashes --no-deps -r requirements.lock`` then takes exactly these files or none.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.request import Request, urlopen

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[1]
EXTRAS = ("train", "onnx", "predict", "plot", "http", "dev")


def closure() -> dict[str, str]:
    """Returns all packages that are needed, with their versions, without local marks such as +cpu."""
    found: dict[str, str] = {}
    todo = [(Requirement("cruciform"), set(EXTRAS))]
    while todo:
        requirement, extras = todo.pop()
        name = canonicalize_name(requirement.name)
        try:
            known = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or Python
        if name in found and not extras:
            continue
        found[name] = known.version.partition("+")[0]
        for text in known.requires or ():
            inner = Requirement(text)
            wanted = inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
            if wanted and canonicalize_name(inner.name) not in found:
                todo.append((inner, set(inner.extras)))
    found.pop("cruciform", None)
    return dict(sorted(found.items()))


def checksums(index: str, name: str, version: str) -> list[str]:
    """Returns the checksums of all files of a version."""
    request = Request(f"{index}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.1"})  # noqa: S310
    with urlopen(request, timeout=60) as answer:  # noqa: S310
        text = answer.read().decode()
    try:
        files = [(file["filename"], file["hashes"].get("sha256")) for file in json.loads(text)["files"]]
    except ValueError:
        files = re.findall(r'href="[^"]*?/([^/"#]+)#sha256=([0-9a-f]{64})"', text)
    return sorted({value for file, value in files if value and _version(file) == version})


def _version(file: str) -> str:
    try:
        return str((parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file))[1])
    except ValueError:
        return ""


def main() -> None:
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True,
                           text=True, check=False)  # fmt: skip
    index = asked.stdout.strip().rstrip("/") or PyPI.simple_url.rstrip("/")
    lines = ["# Written by .ci/lock.py; do not change by hand."]
    for name, version in closure().items():
        sums = checksums(index, name, version)
        if not sums:
            sys.exit(f"the index has no checksums of {name} {version}")
        lines += [f"{name}=={version} \\", *(f"    --hash=sha256:{value} \\" for value in sums)]
        lines[-1] = lines[-1].removesuffix(" \\")
    (ROOT / "requirements.lock").write_text("\n".join(lines) + "\n")
    print(f"{len(lines):,} lines")


if __name__ == "__main__":
    main()
