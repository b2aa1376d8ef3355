"""`python -m edgetrain.cli`."""

import sys

from . import main

sys.exit(main())
