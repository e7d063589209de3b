"""Runs scripts/quickstart without the set-up of the venv. The script judges the job itself; this test reads its
result."""

import re
import subprocess
import sys
from pathlib import Path

QUICKSTART = Path(__file__).resolve().parents[2] / "scripts" / "quickstart.py"


def test_quickstart_shows_a_crash_and_a_node_replaced_by_the_spare_without_a_read_from_disk(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(QUICKSTART)], cwd=tmp_path, capture_output=True, text=True, timeout=290
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = result.stdout.partition("What happened")[2]
    assert len(re.findall(r"went on   [0-9.]+ s after the (crash|death), nothing read from disk: ", report)) == 2
    assert "replaced  by node3, the hot spare" in report
    assert "verdict   success" in report
    assert not list(tmp_path.iterdir()), "it works in a folder of its own"
