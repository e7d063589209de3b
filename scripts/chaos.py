"""The program of scripts/chaos, once the venv is there; the rest is in tests/slurm_lab/chaos."""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]

from tests.slurm_lab.chaos.cli import main  # noqa: E402  # found by the lines above

if __name__ == "__main__":
    sys.exit(main())
