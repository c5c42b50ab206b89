"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import bounds
import constructions
import verification

MODULES = sorted(
    {package.__name__ for package in (bounds, constructions, verification)}
    | {
        found.name
        for package in (bounds, constructions, verification)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not found.name.endswith("make_tokens")  # a script with needs of its own
    }
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert found.failed == 0


def test_there_are_examples_in_every_package() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for package in (bounds, constructions, verification):
        names = [name for name in MODULES if name.split(".")[0] == package.__name__]
        assert len(names) > 4
        examples = sum(
            len(test.examples)
            for name in names
            for test in finder.find(importlib.import_module(name))
        )
        assert examples > 0
