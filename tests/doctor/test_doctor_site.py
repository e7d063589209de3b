"""Tests the judgement of Slurm's configuration: a table of `scontrol show config`'s lines and their findings."""

from pathlib import Path

import pytest
from tests.submit.test_script import job

from ft_supervisor.doctor import site
from ft_supervisor.doctor.finding import Level
from ft_supervisor.doctor.render import lines

BLOCKS = "{topology: {domain: {source: slurm_topology, level: block}}}"
OK, WARN = Level.OK, Level.WARN


@pytest.mark.parametrize(
    ("conf", "check", "level", "words"),
    [
        ({"KillOnBadExit": "0"}, "KillOnBadExit", OK, "0"),
        ({"KillOnBadExit": "1"}, "KillOnBadExit", WARN, "--kill-on-bad-exit=0"),
        ({"WaitTime": "0 sec"}, "WaitTime", OK, "0"),
        ({"WaitTime": "60 sec"}, "WaitTime", WARN, "kills a step 60 s after"),
        ({"SlurmdTimeout": "300 sec"}, "SlurmdTimeout", OK, "DOWN after 300 s"),
        ({"SlurmdTimeout": "0 sec"}, "SlurmdTimeout", WARN, "never gives a dead node up"),
        ({"SlurmdTimeout": "3600 sec"}, "SlurmdTimeout", WARN, "3600 s"),
        ({"KillWait": "30 sec"}, "KillWait", OK, "30 s after SIGTERM"),
        ({"KillWait": "10 sec"}, "KillWait", WARN, "lower timeouts.stop_grace to 10s"),
        ({"AccountingStorageType": "accounting_storage/none"}, "accounting", WARN, "sacct shows nothing"),
        ({"AccountingStorageType": "(null)"}, "accounting", WARN, "sacct shows nothing"),
        (
            {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStoreFlags": "job_comment,job_extra"},
            "accounting", OK, "keeps records",
        ),
        (
            {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStoreFlags": "(null)"},
            "accounting", WARN, "AccountingStoreFlags=job_comment",
        ),
        ({"ProctrackType": "proctrack/cgroup"}, "ProctrackType", OK, "cgroup"),
        ({"ProctrackType": "proctrack/linuxproc"}, "ProctrackType", WARN, "linuxproc: "),
        ({"JobAcctGatherType": "jobacct_gather/none", "TaskPlugin": "task/affinity"}, "memory", WARN, "--exclusive"),
        ({"JobAcctGatherType": "jobacct_gather/cgroup", "TaskPlugin": "task/affinity,task/cgroup"}, "memory", OK, ""),
        (
            {"JobAcctGatherType": "x", "TaskPlugin": "task/cgroup", "JobAcctGatherParams": "OverMemoryKill"},
            "memory", WARN, "not one worker",
        ),
        ({"PrologFlags": "(null)", "Prolog": "(null)"}, "PrologFlags", OK, "none"),
        ({"PrologFlags": "Alloc,Contain", "Prolog[0]": "/x"}, "PrologFlags", OK, "Alloc,Contain"),
        ({"PrologFlags": "(null)", "Prolog[0]": "/etc/slurm/prolog"}, "PrologFlags", OK, "timeouts.join (600 s)"),
        ({"JobRequeue": "1"}, "JobRequeue", OK, "1"),
        ({"JobRequeue": "0"}, "JobRequeue", OK, "does not need"),
        ({"RequeueExit": "(null)", "RequeueExitHold": "(null)"}, "RequeueExit", OK, "none"),
        ({"RequeueExit": "75", "RequeueExitHold": "3-9,100-129"}, "RequeueExit", OK, "RequeueExitHold=3-9,100-129"),
        ({"RequeueExit": "75,90-99"}, "RequeueExit", WARN, "ends with 93, the code"),
        ({"RequeueExitHold": "1-255"}, "RequeueExit", WARN, "ends with 1 or 2 or 93 or 130, the code"),
        ({"PreemptMode": "REQUEUE"}, "PreemptMode", OK, "REQUEUE"),
        ({"PreemptMode": "GANG,SUSPEND"}, "PreemptMode", WARN, "count as hung"),
        ({"PreemptMode": "OFF"}, "PreemptMode", OK, "OFF"),
        ({"MpiDefault": "none"}, "MpiDefault", OK, "none"),
        ({"MpiDefault": "pmix_v4"}, "MpiDefault", WARN, "--mpi=none"),
        ({"SlurmctldParameters": "enable_stepmgr,x"}, "stepmgr", WARN, "batch host"),
        ({"MpiParams": "ports=20000-20999", "SrunPortRange": "0-0"}, "ports of Slurm's", OK, "MpiParams=ports=20000"),
        ({"MpiParams": "(null)", "SrunPortRange": "60001-63000"}, "ports of Slurm's", OK, "60001-63000"),
    ],
)  # fmt: skip
def test_judged(conf: dict[str, str], check: str, level: Level, words: str) -> None:
    (found,) = [each for each in site.judge(conf, None) if each.check == check]
    assert found.level is level and words in f"{found.text} {found.todo}", found
    assert found.todo or level is OK
    assert all(len(line) <= 40 for line in lines(found, 40)), lines(found, 40)


def test_what_is_not_told_is_not_judged() -> None:
    assert [each.check for each in site.judge({}, None)] == ["ports of Slurm's"]


@pytest.mark.parametrize(
    ("conf", "policy", "check", "level"),
    [
        ({"JobRequeue": "0"}, "{interruption: {requeue: true}}", "JobRequeue", WARN),
        ({"KillWait": "10 sec"}, "{timeouts: {stop_grace: 5s}}", "KillWait", OK),
        ({"KillWait": "30 sec"}, "{timeouts: {stop_grace: 60s}}", "KillWait", WARN),
        ({"KillWait": "30 sec"}, "{timeouts: {restart_grace: 45s}}", "KillWait", WARN),
        (
            {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStoreFlags": ""},
            "{accounting: {comment: false}}", "accounting", OK,
        ),
        ({"MpiParams": "ports=20000-20999"}, "{network: {port: 20995}}", "ports of Slurm's", WARN),
        ({"MpiParams": "ports=20000-20999"}, "{network: {port: 21000}}", "ports of Slurm's", OK),
        ({"TopologyPlugin": "(null)"}, BLOCKS, "topology", WARN),
        ({"TopologyPlugin": "topology/block"}, BLOCKS, "topology", OK),
    ],
)  # fmt: skip
def test_judged_with_a_policy(conf: dict[str, str], policy: str, check: str, level: Level, tmp_path: Path) -> None:
    (found,) = [each for each in site.judge(conf, job(tmp_path, f"policy: {policy}")) if each.check == check]
    assert found.level is level, found
