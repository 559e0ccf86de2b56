"""`python -m refimpl` is the command `refimpl`."""

import sys

from refimpl.cli import main

sys.exit(main())
