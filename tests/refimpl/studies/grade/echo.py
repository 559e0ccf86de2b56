"""In place of a lab's process: it tells the grader what it was given."""

import os
import sys
from pathlib import Path

path, pipe, *limits = sys.argv[1:]
what = " ".join([path, *limits, os.environ["PYTHONHASHSEED"], str(Path.cwd())])
os.write(int(pipe), f"{what}\n{Path(path).read_text()}\n{sys.stdin.read()}\n".encode())
