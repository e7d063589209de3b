"""The site builds without a warning, and a warning would be noticed."""

import subprocess
import sys
from pathlib import Path

import pytest

from ft_docs import cli


def test_builds_without_warnings(tmp_path: Path) -> None:
    assert cli.build(tmp_path) == 0
    first = (tmp_path / "index.html").read_text(encoding="utf-8")
    for path in (cli.ROOT / "docs").rglob("*.md"):
        page = path.relative_to(cli.ROOT / "docs").with_suffix(".html")
        assert (tmp_path / page).is_file()
        assert page.as_posix() in first or page.name == "index.html", "it is in the contents of every page"
    assert (tmp_path / "_images" / "processes.svg").is_file()


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "conf.py").write_text((cli.ROOT / "docs" / "conf.py").read_text().replace('["pictures"]', "[]"))
    (docs / "index.md").write_text("# Title\n\n[nowhere](nothing.md)\n")
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    assert cli.build(tmp_path / "site") != 0


def test_the_script_says_what_it_takes(repository: Path) -> None:
    line = [sys.executable, "-m", "ft_docs.cli", "--help"]
    done = subprocess.run(line, cwd=repository / "scripts", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--reference" in done.stdout
