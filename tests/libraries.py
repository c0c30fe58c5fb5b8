"""Finding out whether a shared library is installed."""

from __future__ import annotations

import os
from ctypes.util import find_library

import pytest

_OF_ENGINE = {"gperftools": "tcmalloc"}  # the other engines' libraries are called as the engine


def needs_library(engine: str) -> None:
    """Skip the test unless *engine*'s library is installed; fail it where everything should be."""
    name = _OF_ENGINE.get(engine, engine)
    if find_library(name) is not None:
        return
    sentence = f"lib{name} missing: scripts/setup installs it"
    if os.environ.get("CI"):
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)


def skip_without_library(name: str) -> None:
    """Skip the test unless lib*name* (of any version) is installed; scripts/setup does not install it."""
    if find_library(name) is None:
        pytest.skip(f"lib{name} is not installed")
