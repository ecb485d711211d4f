"""The installer is no package: `python3 install` runs before there is an environment."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[2] / "install"), str(Path(__file__).parent)]
