"""Every source that a docstring names stands in docs/references.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REFERENCES = ROOT / "docs" / "references.md"
FILES = sorted(
    path
    for package in ("bounds", "constructions", "verification")
    for path in (ROOT / package).glob("*.py")
)

PAPER = r"[A-Z][A-Za-z]+[0-9]{4}[a-z]?"
RESULT = r"attention-bounds, [A-Z][0-9]+"
CITATION = re.compile(rf"\[({PAPER}|{RESULT})(?![0-9A-Z])[^\]]*\]")


def texts(path: Path) -> Iterator[str]:
    """Docstrings and every other string constant of a file, on one line each."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


def citations(path: Path) -> set[str]:
    return {match.group(1) for text in texts(path) for match in CITATION.finditer(text)}


def resolves(key: str, references: str) -> bool:
    """A paper has its key as a heading, a result its number in bold under "attention-bounds"."""
    number = key.removeprefix("attention-bounds, ")
    if number == key:
        return re.search(rf"^## {key}$", references, re.MULTILINE) is not None
    own = re.search(r"^## attention-bounds$(.*?)(?=^## |\Z)", references, re.MULTILINE | re.DOTALL)
    return own is not None and f"**{number}**" in own.group(1)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_citations_resolve(path: Path) -> None:
    references = REFERENCES.read_text(encoding="utf-8")
    unknown = {key for key in citations(path) if not resolves(key, references)}
    assert not unknown


def test_citations_are_found() -> None:
    assert {"ClopperPearson1934", "MaurerPontil2009"} <= citations(
        ROOT / "verification" / "confidence.py"
    )
    assert {"attention-bounds, C4", "attention-bounds, C5", "Adler2025"} <= citations(
        ROOT / "constructions" / "relations.py"
    )
    assert "Higham2002" in citations(ROOT / "constructions" / "recognition.py")
    assert len({key for path in FILES for key in citations(path)}) >= 8


def test_unknown_keys_do_not_resolve() -> None:
    page = "# References\n\n## attention-bounds\n\n- **H10**, **C1**: x\n\n## Body1999\n\n**H2**\n"
    assert resolves("Body1999", page)
    assert resolves("attention-bounds, H10", page)
    assert resolves("attention-bounds, C1", page)
    assert not resolves("Nobody1999", page)
    assert not resolves("attention-bounds, H1", page)
    assert not resolves("attention-bounds, H2", page)
    assert not resolves("attention-bounds, H10", "nothing")


def test_every_source_line_has_a_key_of_a_known_form() -> None:
    """`Source: [...]` with anything else in the brackets would escape the check above."""
    for path in FILES:
        for text in texts(path):
            for found in re.findall(r"Source: (\[[^\]]*\]|\S+)", text):
                assert CITATION.fullmatch(found), (path.name, found)
