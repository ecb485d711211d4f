import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # asked_of_workers, also in the processes that they start
