"""Tests how a job was submitted, with stand-ins for sacct and scontrol."""

import os
from pathlib import Path

import pytest

from ft_slurm import submit_lines
from ft_slurm.errors import NoCommands, Unanswered

SCRIPT = """\
#!/bin/bash
# A comment
#SBATCH --nodes=6 --no-kill # why

#SBATCH -p gpu
source x
#SBATCH --kill-on-bad-exit=0
"""


def slurm(folder: Path, name: str, body: str) -> dict[str, str]:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "SACCT_FORMAT": "x"}


def test_lines(tmp_path: Path) -> None:
    rows = "7\\037sbatch -N4 x.sh\\n7.batch\\037\\n7.0\\037srun --no-kill y\\n71\\037other\\n"
    says = f'test -z "$SACCT_FORMAT" || exit 9; echo "$@" > {tmp_path}/asked; printf \'{rows}\''
    environ = slurm(tmp_path, "sacct", says)
    assert submit_lines.lines(7, environ, 30.0) == {"": "sbatch -N4 x.sh", "batch": "", "0": "srun --no-kill y"}
    assert (tmp_path / "asked").read_text().endswith("--jobs=7 --format=JobIDRaw,SubmitLine --delimiter=\x1f\n")
    assert submit_lines.lines(7, slurm(tmp_path, "sacct", "true"), 30.0) == {}
    with pytest.raises(Unanswered, match="sacct: error: no slurmdbd"):
        submit_lines.lines(7, slurm(tmp_path, "sacct", "echo 'sacct: error: no slurmdbd' >&2; exit 1"), 30.0)
    with pytest.raises(NoCommands):
        submit_lines.lines(7, {"PATH": "/nowhere"}, 30.0)


def test_batch_script(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(SCRIPT)
    environ = slurm(tmp_path, "scontrol", f"test \"$*\" = 'write batch_script 7 -' && cat {tmp_path}/script")
    assert submit_lines.batch_script(7, environ, 30.0) == "--nodes=6 --no-kill -p gpu"
    with pytest.raises(Unanswered, match="job script retrieval failed"):
        submit_lines.batch_script(7, slurm(tmp_path, "scontrol", "echo job script retrieval failed; exit 1"), 30.0)


@pytest.mark.parametrize(
    ("line", "keeps"),
    [
        ("sbatch --no-kill x", True),
        ("sbatch --no-kill=set x", True),
        ("sbatch --no-kil x", True),
        ("sbatch -k x", True),
        ("-k", True),
        ("sbatch --no-kill=off x", False),
        ("sbatch -p-k x", False),
        ("sbatch x", False),
    ],
)
def test_keeps_nodes(line: str, keeps: bool) -> None:
    assert submit_lines.keeps_nodes(line) == keeps


def test_outlives_tasks() -> None:
    assert submit_lines.outlives_tasks("srun --kill-on-bad-exit=0 --wait=0 x")
    assert not submit_lines.outlives_tasks("srun --kill-on-bad-exit=0 --wait=05 x")
    assert not submit_lines.outlives_tasks("srun --kill-on-bad-exit=1 --wait=0 x")
