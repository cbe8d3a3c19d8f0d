"""Whatever a user reads is in the field's words: ``glossary.toml`` holds ours, which no text may use.

    python tests/house/test_language.py [PACKAGE]      prints every hit, package by package

Read are all texts and their templates; all string constants of ``src/`` but docstrings (errors, log lines, help, plot
labels; an f-string as one text with ``{}`` for its values; a single word only where it is a label, for elsewhere it is
a key of data); the docstrings of commands and public functions, which are help texts; and the names of recipe keys,
table fields and flags.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "cruciform"
TABLE = tomllib.loads(Path(__file__).with_name("glossary.toml").read_text("utf-8"))
PUBLIC = ("cli", "api")  # whose functions' docstrings are help texts, and whose arguments are flags
LABELS = ("cli", "api", "plot", "reports")  # where a single word is a heading or a label; elsewhere it is a key of data
WORD = re.compile(r"[a-z0-9_.-]+")
REFERENCE = re.compile(r"\{[\w-]+(?:\[[^\]]+\])?\.[\w.-]+?(?::[^}]+)?\}|\{%.*?%\}|\{\{.*?\}\}")


@dataclass(frozen=True)
class Term:
    """A word of ours: how it is found, and the field's."""

    field: str
    pattern: "re.Pattern[str]"
    keys: frozenset[str]
    flags: frozenset[str]
    names: frozenset[str]
    example: str
    fine: str

    @classmethod
    def from_table(cls, row: dict[str, Any]) -> "Term":
        """Return the term of a row of the glossary."""
        pattern = re.compile(row["pattern"], re.MULTILINE | (re.IGNORECASE if not row.get("names") else 0))
        keys, flags, names = (frozenset(row.get(what, [])) for what in ("keys", "flags", "names"))
        return cls(row["field"], pattern, keys, keys | flags, names, row["example"], row.get("fine", ""))


@dataclass(frozen=True)
class Hit:
    """One of our words in a place where a user reads it."""

    path: str
    line: int
    found: str
    field: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found!r}, the field says: {self.field}"


TERMS = [Term.from_table(row) for row in TABLE["term"]]
EXCEPTIONS: list[dict[str, str]] = TABLE.get("exception", [])
ALL_KEYS = {key: term.field for term in TERMS for key in term.keys}
ALL_FLAGS = {flag: term.field for term in TERMS for flag in term.flags}
ALL_NAMES = {name: term.field for term in TERMS for name in term.names}


def search(text: str, path: str, line: int = 1) -> Iterator[Hit]:
    """Yield every word of ours in a text."""
    for term in TERMS:
        for match in term.pattern.finditer(text):
            around = text[max(0, match.start() - 30) : match.end() + 30].replace("\n", " ")
            if not _allowed(path, text[max(0, match.start() - 60) : match.end() + 60]):
                yield Hit(path, line + text[: match.start()].count("\n"), around, term.field)


def _allowed(path: str, around: str) -> bool:
    return any(one["path"] in path and one["text"] in around for one in EXCEPTIONS)


def strings(tree: ast.AST, *, public: bool) -> Iterator[tuple[str, int]]:
    """Yield the string constants of a module with their lines, f-strings as one, docstrings where they are shown."""
    shown = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if public and isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if isinstance(node.body[0], ast.Expr)
    }
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)} - shown
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield text, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | documents:
            yield node.value, node.lineno


def in_source(path: Path) -> Iterator[Hit]:
    """Yield the hits of a module: its strings, its names, and in commands and recipe tables its keys."""
    package = path.relative_to(SOURCE).parts[0]
    name = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text("utf-8"))
    public = package in PUBLIC and "shared" not in path.parts
    for text, line in strings(tree, public=public):
        if package in LABELS or not WORD.fullmatch(text):
            yield from search(text, name, line)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.arg):
            word = node.arg if isinstance(node, ast.arg) else node.name
            known = ALL_NAMES | (ALL_FLAGS if public and isinstance(node, ast.arg) else {})
            if word in known:
                yield Hit(name, node.lineno, word, known[word])
        elif "recipe" in path.parts and isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            key = node.target.id
            yield from [Hit(name, node.lineno, key, ALL_KEYS[key])] if key in ALL_KEYS else []


def in_table(path: Path) -> Iterator[Hit]:
    """Yield the hits of a TOML file: its keys, and the texts in it."""
    name = path.relative_to(ROOT).as_posix()

    def walk(value: Any) -> Iterator[Hit]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key in ALL_KEYS:
                    yield Hit(name, 1, key, ALL_KEYS[key])
                yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)
        elif isinstance(value, str):
            yield from search(value, name)

    yield from walk(tomllib.loads(path.read_text("utf-8")))


def source_hits() -> list[Hit]:
    """Return all hits of ``src/``."""
    modules = [hit for path in sorted(SOURCE.rglob("*.py")) for hit in in_source(path)]
    return modules + [hit for path in sorted(SOURCE.rglob("*.toml")) for hit in in_table(path)]


def texts() -> list[Path]:
    """Return every text and template."""
    docs = ROOT / "docs"
    return sorted([*ROOT.glob("*.md"), *docs.rglob("*.md"), *docs.rglob("*.md.in")])


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_text_uses_the_fields_words(path: Path) -> None:
    text = REFERENCE.sub("0", path.read_text("utf-8"))
    hits = list(search(text, path.relative_to(ROOT).as_posix()))
    assert "\n".join(map(str, hits)) == ""


def test_whatever_the_source_shows_uses_the_fields_words() -> None:
    hits = source_hits()
    assert "\n".join(map(str, hits)) == ""


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.field)
def test_each_word_is_found_wherever_it_is_shown(term: Term, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    (tmp_path / "cli").mkdir()
    (tmp_path / "recipe").mkdir()
    module = tmp_path / "cli" / "module.py"
    shown = [
        f"raise ValueError({term.example!r})",
        f"def command():\n    {term.example!r}",
        f"log(f{term.example + ' {x}'!r})",
    ]
    shown += [f"def command({name}):\n    pass" for name in term.flags | term.names]
    for code in shown:
        module.write_text(code)
        assert any(hit.field == term.field for hit in in_source(module)), code
    for key in term.keys:
        (tmp_path / "recipe" / "a.toml").write_text(f"[optimizer]\n{key} = 1\n")
        assert [hit.field for hit in in_table(tmp_path / "recipe" / "a.toml")] == [term.field]
        (tmp_path / "recipe" / "tables.py").write_text(f"class Optimizer:\n    {key}: float = 1.0\n")
        assert [hit.field for hit in in_source(tmp_path / "recipe" / "tables.py")] == [term.field]
    assert any(hit.field == term.field for hit in search(term.example, "README.md"))
    assert not any(hit.field == term.field for hit in search(term.fine, "README.md"))


def test_docstrings_are_read_where_they_are_help_texts_only() -> None:
    tree = ast.parse('"""Told."""\ndef f():\n    """Judged anew."""\ndef _g():\n    """Gone on with."""\n')
    assert [text for text, _ in strings(tree, public=True)] == ["Judged anew."]
    assert not list(strings(tree, public=False))


def test_there_are_few_exceptions_and_each_is_needed() -> None:
    assert len(EXCEPTIONS) <= 10
    for one in EXCEPTIONS:
        assert set(one) == {"path", "text", "why"}
        files = [path for path in [*SOURCE.rglob("*.py"), *texts()] if one["path"] in path.relative_to(ROOT).as_posix()]
        assert any(one["text"] in path.read_text("utf-8") for path in files), f"{one} allows nothing any more"


def main() -> None:
    """Print the hits of every package, or of one."""
    by_package: dict[str, list[Hit]] = {}
    for hit in source_hits():
        by_package.setdefault(Path(hit.path).parts[2], []).append(hit)
    for package, hits in sorted(by_package.items()):
        if len(sys.argv) < 2 or sys.argv[1] == package:
            print(f"\n## {package}: {len(hits)}")
            print("\n".join(f"- {hit}" for hit in hits))


if __name__ == "__main__":
    main()
