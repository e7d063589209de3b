"""What is written of a game day."""

import json
from pathlib import Path

from ft_supervisor.fault import record
from ft_supervisor.fault.messages import Act, Target, Verb
from ft_supervisor.fault.shell import act_line

ACT = Act("2026-01-02T03:04:05.678+00:00", Verb.FREEZE, Target.WORKER, "n3", (12,), 5, 20.0, 7)


def test_a_line_each(tmp_path: Path) -> None:
    assert record.append(tmp_path, ACT) == "" == record.append(tmp_path, ACT)
    lines = (tmp_path / "faults.jsonl").read_text().splitlines()
    assert lines[0] == lines[1]
    assert json.loads(lines[0]) == {
        "time": "2026-01-02T03:04:05.678+00:00",
        "act": "freeze",
        "target": "worker",
        "node": "n3",
        "pids": [12],
        "rank": 5,
        "seconds": 20.0,
        "seed": 7,
        "note": "",
    }


def test_a_folder_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    assert "not recorded" in record.append(tmp_path / "gone", ACT)


def test_for_people() -> None:
    assert act_line(ACT) == "2026-01-02T03:04:05.678+00:00 freeze worker node=n3 rank=5 pid=12 for=20s"
    many = Act("T", Verb.KILL, Target.NODE, "n3", tuple(range(1, 12)), note="not recorded")
    assert act_line(many) == "T kill node node=n3 pid=1,2,3,4,5,6,7,8+3 (not recorded)"
    assert act_line(Act("T", Verb.CUT, Target.NODE, "n3", (), seconds=0.5)) == "T cut node node=n3 for=0.5s"
