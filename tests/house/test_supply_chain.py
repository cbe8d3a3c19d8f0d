"""What we stand on, and how we ship: versions without known holes, checksums, workflows that can't be turned."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

# The first version of each without a hole that concerns us, and which one that was.
FLOORS = {
    "lightning": ("2.6.6", "2.6.2 and 2.6.3 were stolen and carried malware"),
    "torch": ("2.10", "CVE-2025-32434 and CVE-2026-24747, code and memory corruption by weights"),
    "pillow": ("12.3", "CVE-2026-25990, -42311, -55380 and others, in decoders"),
    "onnx": ("1.21", "CVE-2026-27489, -34445, -34446, data outside of a file"),
    "safetensors": ("0.7", "the audited format"),
    "ray": ("2.52", "token authentication; CVE-2023-48022 without"),
    "optuna": ("4.9", "the journal file"),
}
BANNED = {
    "lightning",
    "pytorch-lightning",
    "hydra-core",
    "omegaconf",
    "pyyaml",
    "mlflow",
    "dill",
    "cloudpickle",
    "joblib",
}


EXTRAS: dict[str, list[str]] = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}


def requirements() -> list[Requirement]:
    return [Requirement(text) for group in EXTRAS.values() for text in group]


@pytest.mark.parametrize("name", FLOORS)
def test_no_version_with_a_known_hole_can_be_installed(name: str) -> None:
    floor, why = FLOORS[name]
    found = [one for one in requirements() if canonicalize_name(one.name) == name]
    assert found
    for one in found:
        lowest = [Version(part.version) for part in one.specifier if part.operator in (">=", "==", "~=")]
        assert lowest, one
        assert min(lowest) >= Version(floor), f"{one}: {why}"


def test_every_requirement_has_a_floor_and_no_address() -> None:
    for one in requirements():
        assert one.url is None, one
        assert one.name == "cruciform" or any(part.operator in (">=", "==") for part in one.specifier), one
    # An example shows Lightning; nothing but the texts stands on it.
    shipped = [Requirement(text) for name, group in EXTRAS.items() if name != "docs" for text in group]
    assert not {canonicalize_name(one.name) for one in shipped} & BANNED


def locked() -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+) \\$", LOCK, re.MULTILINE))


def test_the_lock_has_checksums_for_all_and_names_no_place() -> None:
    lines = [line for line in LOCK.splitlines() if line and not line.startswith("#")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        assert re.fullmatch(r"[a-z0-9.-]+==[\w.]+ \\|    --hash=sha256:[0-9a-f]{64}( \\)?", line), line
        assert "==" not in line or following.startswith("    --hash")
    assert "://" not in LOCK
    assert len(locked()) > 50


def test_the_lock_holds_what_is_asked_for() -> None:
    found = locked()
    for text in (text for extra in ("", "train", "onnx", "predict", "plot", "http", "dev") for text in EXTRAS[extra]):
        one = Requirement(text)
        assert one.name == "cruciform" or Version(found[canonicalize_name(one.name)]) in one.specifier, text
    assert {"build", "hatchling"} <= set(found), "a release is built with what is locked"


def test_what_judges_the_code_is_the_same_tomorrow() -> None:
    """A new version of either finds new faults in old code: a day on which nothing was changed turned red."""
    exact = {one.name for one in requirements() if any(part.operator == "==" for part in one.specifier)}
    assert {"ruff", "mypy"} <= exact


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_pinned_and_may_do_little(path: Path) -> None:
    text = path.read_text("utf-8")
    for action in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
    code = re.sub(r"#.*", "", text)
    assert "pull_request_target" not in code
    assert re.search(r"^permissions:", code, re.MULTILINE)
    assert "write-all" not in code
    assert "secrets." not in code
    assert not re.search(r"run:.*\$\{\{\s*github\.(event|head_ref)", code), (
        "text of strangers must not become a command"
    )
    assert all("persist-credentials: false" in part[:120] for part in code.split("actions/checkout@")[1:])


def test_a_release_restores_no_cache_and_has_no_token_but_its_own() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    code = re.sub(r"#.*", "", text)
    assert "cache" not in code
    assert "password" not in code
    assert code.count("id-token: write") == 1
    assert "environment: release" in code
    assert "--require-hashes" in code
    assert "cmp " in code
