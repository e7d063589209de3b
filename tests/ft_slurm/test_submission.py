"""Tests the submission with a stand-in for sbatch, which prints the real one's messages."""

import os
from pathlib import Path

import pytest

from ft_slurm import submission
from ft_slurm.errors import NoCommands, Refused, Unanswered
from ft_slurm.submission import Submitted


def sbatch(folder: Path, body: str) -> dict[str, str]:
    """Return an environment with that sbatch in its PATH."""
    path = folder / "sbatch"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}


def test_the_script_and_the_options_arrive(tmp_path: Path) -> None:
    said = f"printf '%s\\n' \"$@\" > {tmp_path}/argv; cat > {tmp_path}/script; echo 4242"
    script = b"#!/bin/bash\n" + b"# \xff long\n" * 100_000
    done = submission.submit(script, ["--comment=a b", "--no-kill"], sbatch(tmp_path, said))
    assert done == Submitted(4242, None, "")
    assert (tmp_path / "script").read_bytes() == script
    assert (tmp_path / "argv").read_text().splitlines() == ["--parsable", "--comment=a b", "--no-kill"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("echo '4242;red'", Submitted(4242, "red", "")),
        ("echo 'sbatch: lua: be nice' >&2; echo 4242", Submitted(4242, None, "sbatch: lua: be nice")),
        ("echo '** welcome **'; echo 4242", Submitted(4242, None, "** welcome **")),
        ("echo 'sbatch: Job 7 to start at 2026' >&2", Submitted(None, None, "sbatch: Job 7 to start at 2026")),
    ],
)
def test_what_it_says(body: str, expected: Submitted, tmp_path: Path) -> None:
    assert submission.submit(b"", (), sbatch(tmp_path, body)) == expected


def test_refused(tmp_path: Path) -> None:
    environ = sbatch(tmp_path, "echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    with pytest.raises(Refused, match="sbatch --parsable -p: sbatch: error: invalid partition specified: gpu"):
        submission.submit(b"", ["-p"], environ)


def test_nobody_answers(tmp_path: Path) -> None:
    environ = sbatch(tmp_path, "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller "
                               "(connect failure)' >&2; exit 1")  # fmt: skip
    with pytest.raises(Unanswered, match="Unable to contact"):
        submission.submit(b"", (), environ)
    with pytest.raises(Unanswered, match=r"has not answered within 0\.3 s"):
        submission.submit(b"x" * 10**6, (), sbatch(tmp_path, "sleep 1000"), timeout=0.3)
    with pytest.raises(NoCommands, match="no sbatch"):
        submission.submit(b"", (), {"PATH": str(tmp_path / "nowhere")})
