"""The installer is no package: `python3 install` runs before there is an environment."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "install"))
