"""The files with evidence about nodes: what is written, and whose files count."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from ft_supervisor.core.placement.node_memory import FORGOTTEN
from ft_supervisor.run_folder import node_files
from ft_supervisor.run_folder.node_files import Entry, NodeFolder, folder, read, write

NOW = time.time()


def entry(node: str, cycle: str = "0.1") -> Entry:
    return Entry(node, "lost_node", cycle, NOW)


@pytest.fixture
def own(tmp_path: Path) -> NodeFolder:
    found = folder({"XDG_STATE_HOME": str(tmp_path)}, "big", "own")
    assert found == NodeFolder(tmp_path / "ft-supervisor/nodes/big", shared=False)
    return found


def nodes(where: NodeFolder) -> list[tuple[str, int]]:
    return sorted((blame.node, blame.job_id) for blame in read(where)[0])


def test_settings(tmp_path: Path) -> None:
    assert folder({"HOME": str(tmp_path)}, None, "none") is None
    assert folder({}, None, "own") is None
    assert folder({}, "c", "/shared") == NodeFolder(Path("/shared"), shared=True)


def test_a_run_has_one_file_to_which_a_successor_adds(own: NodeFolder) -> None:
    assert read(own) == ([], [])
    write(own, "12.0.0", [entry("a")])
    write(own, "12.0.0", [entry("a"), entry("b", "1.2")])
    write(own, "13.0.0", [entry("a")])
    assert nodes(own) == [("a", 12), ("a", 13), ("b", 12)]
    assert sorted(path.name for path in own.path.iterdir()) == ["12.0.0.json", "13.0.0.json"]
    assert {path.stat().st_mode & 0o777 for path in own.path.iterdir()} == {0o600}


def test_one_job_writes_a_bounded_file(own: NodeFolder) -> None:
    write(own, "12.0.0", [entry(f"n{number}") for number in range(1000)])
    assert len(nodes(own)) == node_files.MOST_BLAMES


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_to_does_not_count(own: NodeFolder, mode: int) -> None:
    write(own, "12.0.0", [entry("a")])
    (own.path / "12.0.0.json").chmod(mode)
    blames, (note,) = read(own)
    assert blames == [] and "others may write" in note


@pytest.mark.parametrize("shared", [False, True])
def test_a_folder_that_anyone_may_write_to_does_not_count(tmp_path: Path, shared: bool) -> None:
    where = NodeFolder(tmp_path / "x", shared)
    where.path.mkdir()
    write(where, "12.0.0", [entry("a")])
    assert nodes(where) == [("a", 12)]
    where.path.chmod(0o1777)
    assert read(where)[0] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users take root")
def test_another_user_s_file_counts_in_a_group_s_folder_alone(tmp_path: Path) -> None:
    for shared, expected in ((True, [7]), (False, [])):
        where = NodeFolder(tmp_path / str(shared), shared)
        where.path.mkdir()
        write(where, "12.0.0", [entry("a")])
        os.chown(where.path / "12.0.0.json", 7, 7)
        assert [blame.owner for blame in read(where)[0]] == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", "[" * 9000, " " * 20_000, '{"version": 2, "run_id": "12.0.0", "blames": []}',
        '{"version": 1, "run_id": "13.0.0", "blames": [{"node": "a", "cause": "hang", "cycle": "", "time": 1}]}',
        '{"version": 1, "run_id": "12.0.0", "blames": {"node": "a"}}', '{"version": 1, "run_id": "12.0.0"}',
        '{"version": 1, "run_id": "12.0.0", "blames": [1, {}, {"node": "../x", "cause": "hang", "cycle": "", "time": 1}'
        "]}",
        '{"version": 1, "run_id": "12.0.0", "blames": [{"node": "a", "cause": "H", "cycle": "", "time": 1}]}',
        '{"version": 1, "run_id": "12.0.0", "blames": [{"node": "a", "cause": "hang", "cycle": "", "time": "1"}]}',
        '{"version": 1, "run_id": "12.0.0", "blames": [{"node": "a", "cause": "hang", "cycle": "", "time": 1%s}]}'
        % ("0" * 400),
    ],
)  # fmt: skip
def test_what_is_no_evidence_does_not_count(own: NodeFolder, text: str) -> None:
    own.path.mkdir(parents=True)
    (own.path / "12.0.0.json").write_text(text)
    (own.path / "note.json").write_text(text)
    assert read(own)[0] == []


def test_keys_of_later_versions_are_passed_over(own: NodeFolder) -> None:
    write(own, "12.0.0", [entry("a")])
    path = own.path / "12.0.0.json"
    value = json.loads(path.read_text())
    value["more"], value["blames"][0]["more"] = 1, 2
    path.write_text(json.dumps(value))
    assert nodes(own) == [("a", 12)]


def test_a_pipe_is_not_waited_for(own: NodeFolder) -> None:
    own.path.mkdir(parents=True)
    os.mkfifo(own.path / "12.0.0.json")
    assert read(own)[0] == []


def test_old_files_are_removed(own: NodeFolder) -> None:
    write(own, "12.0.0", [entry("a")])
    os.utime(own.path / "12.0.0.json", (NOW - FORGOTTEN - 60,) * 2)
    write(own, "13.0.0", [entry("b")])
    assert [path.name for path in own.path.iterdir()] == ["13.0.0.json"]


def test_forgiven(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    for job in (12, 13):
        write(NodeFolder(tmp_path / "ft-supervisor/nodes/c", False), f"{job}.0.0", [entry("a")])
    (record,) = node_files.known(environ, "c", "own", NOW).records
    assert (record.node, record.jobs, record.listed) == ("a", 2, True)
    node_files.forgive(environ, "c", ["a"], NOW + 1)
    node_files.forgive(environ, "c", ["b"], NOW + 2)
    assert node_files.known(environ, "c", "own", NOW + 3).records == ()
    assert node_files.forgiven(environ, "c") == {"a": NOW + 1, "b": NOW + 2}
