"""Feeds every parser of Slurm's outputs with arbitrary text: it returns, or raises the documented error, in one line.

Half of the text is real Slurm output, cut, doubled and with insertions; half is made up.
"""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ft_slurm.fake_slurm import JOB, RECORDED

from ft_slurm import pyslurm_answers, sacct_jobs, sacct_text, scontrol_json, scontrol_text
from ft_slurm.errors import SlurmError

SAMPLES = [path.read_text() for path in sorted(RECORDED.rglob("*")) if path.is_file()]
Parser = Callable[[str], object]


def of_answer(read: Callable[[object], object]) -> Parser:
    return lambda text: read(pyslurm_answers.answer(text))


PARSERS: dict[str, Parser] = {
    "job": lambda text: scontrol_text.job(text, JOB),
    "steps": lambda text: scontrol_text.running_steps(text, str(JOB)),
    "nodes": scontrol_text.nodes,
    "configuration": scontrol_text.configuration,
    "version": scontrol_text.version,
    "JSON job": lambda text: scontrol_json.job(text, JOB),
    "JSON nodes": scontrol_json.nodes,
    "sacct": lambda text: sacct_text.records(text, JOB),
    "list of jobs": sacct_jobs.rows,
    "pyslurm job": of_answer(pyslurm_answers.job),
    "pyslurm nodes": of_answer(pyslurm_answers.nodes),
    "pyslurm steps": of_answer(pyslurm_answers.running_steps),
    "pyslurm configuration": of_answer(pyslurm_answers.configuration),
    "pyslurm accounting": of_answer(lambda said: pyslurm_answers.accounting(said, JOB)),
}
WORDS = st.sampled_from([
    "JobId=4242 ", "ArrayTaskId=", "JobState=", "COMPLETING", "TimeLimit=", "1-00:00:00", "EndTime=", "UserId=a(1)",
    "\x1f", "\n", "StepId=4242.0", "State=", "NodeName=n0 ", "=", "(null)", "Comment=", "-1", "9" * 5000, "٣", " ",
    "\0", "4242|", "4242", "Reason=", "PreemptTime=", "ExitCode=1:", "1:99999999999",
])  # fmt: skip
PIECES = st.one_of(WORDS, st.text(max_size=20), st.just("JobId=4242 UserId=a(1) JobState=RUNNING "))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from([JOB, 2**32 - 2]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from([
            "set", "infinite", "number", "job_id", "job_state", "state", "state_flags", "time_limit", "end_time",
            "name", "exit_code", "return_code", "signal", "id", "array_job_id", "comment", "reason", "step",
            "start_time", "array_task_id", "user_id", "restart_cnt",
        ]), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(0, 3))):
        begin, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        text = text[:begin] + draw(PIECES) + text[end if draw(st.booleans()) else begin :]
    return text


def texts() -> st.SearchStrategy[str]:
    made_up = st.lists(PIECES, max_size=20).map("".join)
    of_json = st.one_of(
        VALUES.map(lambda value: {"answer": value}),
        st.lists(VALUES, max_size=3).map(lambda jobs: {"jobs": jobs, "nodes": jobs}),
        st.fixed_dictionaries({"job_id": st.just(JOB), "job_state": VALUES, "end_time": VALUES, "exit_code": VALUES})
        .map(lambda job: {"jobs": [job]}),
    ).map(json.dumps)  # fmt: skip
    deep = st.sampled_from(
        ["[" * 100_000, '{"jobs":' * 100_000, '{"jobs": [{"job_id": 4242, "end_time": 1e999}]}', "9" * 5000]
    )
    return st.one_of(damaged(), made_up, of_json, deep)


@pytest.mark.parametrize("name", PARSERS)
@given(text=texts())
def test_parser_returns_or_says_why_in_one_line(name: str, text: str) -> None:
    try:
        PARSERS[name](text)
    except SlurmError as error:
        assert len(str(error).splitlines()) == 1
        assert len(str(error)) < 1000


def test_samples_are_there() -> None:
    assert len(SAMPLES) > 10
