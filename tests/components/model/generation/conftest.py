"""Lets the tests of this room import what lies beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves it out
