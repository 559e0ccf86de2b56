"""`python -m refimpl.demo [FOLDER]` draws into FOLDER, by default `demo`."""

import sys
from pathlib import Path

from refimpl.demo import main

sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo")))
