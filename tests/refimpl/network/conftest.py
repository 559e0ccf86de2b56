"""What several rooms' tests share lies one folder up and is imported by its name: plainly, by_torch, drawn_networks."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
