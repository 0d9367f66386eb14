"""`python -m calor.cli`."""

import sys

from . import main

sys.exit(main())
