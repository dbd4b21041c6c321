"""``python -m rsgen``: the command ``rsgen``."""

import sys

from ._cli import main

sys.exit(main())
