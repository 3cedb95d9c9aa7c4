"""`python -m perception.cli` equals `waysight`."""

import sys

from perception.cli import main

sys.exit(main())
