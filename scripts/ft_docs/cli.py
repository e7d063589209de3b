"""`scripts/docs`: writes the pages that are made from the code, and builds the site."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ft_docs import advice_tables, commands, configuration, events, formats, metrics, small_pages, states
from ft_supervisor.history import read_run
from ft_supervisor.report import picture

ROOT = Path(__file__).resolve().parents[2]
REFERENCE: Mapping[str, Callable[[], str]] = {
    "configuration": configuration.render,
    "commands": commands.render,
    "metrics": metrics.render,
    "formats": formats.render,
    "exit-codes": small_pages.exit_codes,
    "store-keys": small_pages.store_keys,
    "log-events": lambda: events.render(ROOT),
}
"""The pages of docs/reference by name, without .md."""


def reference_path(name: str) -> Path:
    """Return the path of this page of docs/reference."""
    return ROOT / "docs" / "reference" / f"{name}.md"


def made() -> Mapping[Path, str]:
    """Return all files that are made from the code, with their content."""
    pages = {reference_path(name): render() for name, render in REFERENCE.items()}
    docs = ROOT / "docs"
    drawn = {docs / "pictures" / name: svg for name, svg in states.pictures().items()}
    with_tables = {docs / "3am.md": advice_tables.render(ROOT)}
    return pages | drawn | with_tables | {docs / "internals" / "states.md": states.render()}


def build(target: Path) -> int:
    """Build the site as HTML in `target`. Return the exit code, which is not 0 if there is an error or a warning."""
    options = ["--builder=html", "--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--fresh-env"]
    line = [sys.executable, "-m", "sphinx", *options, f"--doctree-dir={target / '.doctrees'}"]
    return subprocess.run([*line, str(ROOT / "docs"), str(target)], check=False).returncode


def main(words: Sequence[str] | None = None) -> int:
    """Write the pages and build the site. Return the exit code."""
    parser = argparse.ArgumentParser(prog="docs", description=__doc__, allow_abbrev=False)
    parser.add_argument("--reference", action="store_true", help="write only the pages that are made from the code")
    parser.add_argument(
        "--timeline", type=Path, metavar="RUN", help="draw README's picture from this run's folder, and nothing else"
    )
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "docs", metavar="DIR", help="default: %(default)s")
    arguments = parser.parse_args(words)
    if arguments.timeline is not None:
        drawn = picture.draw(read_run.read(arguments.timeline), "The timeline of a job whose nodes fail")
        (ROOT / "docs" / "pictures" / "timeline.svg").write_text(drawn, encoding="utf-8")
        return 0
    for path, content in made().items():
        path.write_text(content, encoding="utf-8")
    if arguments.reference:
        return 0
    code = build(arguments.to)
    if code == 0:
        print(f"{arguments.to}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
