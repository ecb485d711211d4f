"""The installer is no package: `python3 install` runs before there is an environment. A release goes the tiny
road of tests/pipelines."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path += map(str, [_TESTS.parent / "install", Path(__file__).parent, _TESTS / "pipelines"])
