"""`python -m ft_supervisor`: the same as the `ft-supervisor` command."""

from __future__ import annotations

import sys

from ft_supervisor.cli.main import main

sys.exit(main())
