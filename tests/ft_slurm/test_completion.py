"""Tests `completion` with commands and a library of our own: the consequence of each of their answers.

The answers are output of scontrol 22.05 and 24.11. The library is compiled here with Slurm's declarations, and records
its calls. tests/slurm_lab asks a real Slurm.
"""

import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ft_slurm import command, completion, libslurm
from ft_slurm.completion import BatchHostState, CompletionResult
from ft_slurm.errors import Unanswered

JOB = (
    "JobId={id} {array}JobName=my job BatchFlag=0 UserId=ftlab(64042) GroupId=ftlab(1000) JobState={state} "
    "Reason=None Dependency=(null) Requeue=1 Restarts={restarts} BatchFlag={batch} Reboot=0 Partition=main "
    "AllocNode:Sid=ctl:9906 ReqNodeList=(null) ExcNodeList=(null) NodeList={nodes} BatchHost={host} NumNodes=3 "
    "Command=(null) WorkDir=/tmp Comment=NodeList=n9 \n"
)
STEP = "StepId={step} UserId=64042 TimeLimit=UNLIMITED State={state} Partition=main NodeList=n[0-3] Nodes=4 Name=sh\n"
NODE = "NodeName=n0 Arch=x86_64 CPUTot=8 RealMemory=4000 State={state} ThreadsPerCore=1 Partitions=main Reason=dead\n"
CONFIG = "PluginDir               = {plugins}\nSlurmdTimeout           = {timeout} sec\nMessageTimeout = 10 sec\n"
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"

SCONTROL = """\
#!/bin/sh
# Answers from files, and writes down what it was asked.
here={folder}
echo "$*" >> $here/asked
for last; do :; done
case "$*" in
    *"show job"*) kind=job ;; *"show step"*) kind=step ;; *"show node"*) kind=node ;; *"show config"*) kind=config ;;
esac
if test -e $here/away; then cat $here/away >&2; exit 1; fi
if test -s $here/$kind; then cat $here/$kind; else echo "$kind $last not found"; exit 1; fi
"""

LIBRARY = """\
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int initialised;
typedef struct { uint64_t sluid; uint32_t job_id; uint32_t step_het_comp; uint32_t step_id; } slurm_step_id_t;

long slurm_api_version(void) { return VERSION; }

void slurm_init(const char *conf)
{
    if (conf) abort();
    if (getenv("FT_FATAL")) { fprintf(stderr, "fatal: Could not establish a configuration source\\n"); exit(1); }
    initialised = 1;
}

const char *slurm_strerror(int number) { return number == 2010 ? "Access/permission denied" : "Connect failure"; }

static int answer(const char *text)
{
    FILE *calls = fopen(getenv("FT_CALLS"), "a");
    if (!initialised || !calls) abort();
    fprintf(calls, "%s\\n", text);
    fclose(calls);
    if (getenv("FT_HANG")) pause();
    if (getenv("FT_SIGNALLED")) raise(SIGTERM);
    errno = getenv("FT_ERROR") ? atoi(getenv("FT_ERROR")) : 0;
    return errno ? -1 : 0;
}

#if VERSION >= 0x2c0000
int slurm_complete_job(slurm_step_id_t *step, uint32_t code)
{
    char text[200];
    snprintf(text, sizeof text, "%llu %u %x %x %u", (unsigned long long)step->sluid, step->job_id,
             step->step_het_comp, step->step_id, code);
    return answer(text);
}
#else
int slurm_complete_job(uint32_t job_id, uint32_t code)
{
    char text[200];
    snprintf(text, sizeof text, "%u %u", job_id, code);
    return answer(text);
}
#endif
"""


def job_line(**fields: object) -> str:
    usual = {"id": 7, "array": "", "state": "RUNNING", "nodes": "n[1-3]", "host": "n0", "batch": 1, "restarts": 0}
    return JOB.format(**(usual | fields))


def steps(*names: str, host: str = "n0") -> str:
    lines = [STEP.format(step=name, state="RUNNING") for name in names]
    return "".join(line.replace("n[0-3]", host) if "batch" in line else line for line in lines)


@dataclass
class Site:
    """A folder with Slurm's answers; the job is 7, its own step 0, and n0 was its batch host."""

    folder: Path
    lines: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    on_line: Callable[[str, dict[str, object]], None] = lambda event, fields: None

    def job(self, **fields: object) -> None:
        self.says("job", job_line(**fields))

    def says(self, kind: str, text: str) -> None:
        partial = self.folder / "partial"
        partial.write_text(text)
        partial.rename(self.folder / kind)

    def log(self, event: str, level: str = "info", **fields: object) -> None:
        self.lines.append((event, {"level": level, **fields}))
        self.on_line(event, fields)

    def complete(self, code: int = 0, *, restart_count: int | None = None) -> CompletionResult:
        return completion.complete(7, 0, code, restart_count=restart_count, log=self.log)

    @property
    def events(self) -> list[str]:
        return [event for event, _ in self.lines]

    def left(self) -> str:
        """Return why the job was left running, from the log line, which must name a remedy."""
        ((level, fields),) = [(each["level"], each) for event, each in self.lines if event == "job_left_running"]
        assert (level, fields["ends_it"]) == ("error", "scancel 7")
        assert str(fields["left"]).startswith("job 7")
        return str(fields["why"])

    def calls(self) -> list[str]:
        """Return the arguments of the library's calls."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Compile a library for each prototype; the keys are the releases whose version they report."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    built = {}
    for release, version in (("24.11", "0x2a0000"), ("25.05", "0x2b0000"), ("25.11", "0x2c0000")):
        folder = tmp_path_factory.mktemp(release)
        (folder / "slurm.c").write_text(LIBRARY)
        built[release] = folder / "libslurmfull.so"
        line = [compiler, "-shared", "-fPIC", "-Wall", "-Werror", f"-DVERSION={version}", "-o", str(built[release])]
        subprocess.run([*line, str(folder / "slurm.c")], check=True, timeout=120)
    return built


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Commands, and no library: a running batch job without its host n0, and no other step."""
    monkeypatch.setattr(completion, "PAUSE", 0.05)
    monkeypatch.setattr(libslurm, "LIBRARY_FOLDERS", ())  # a real library of this machine must not be called
    site = Site(tmp_path)
    scontrol = tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(SCONTROL.format(folder=tmp_path))
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scontrol.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FT_CALLS", str(tmp_path / "calls"))
    site.job()
    site.says("step", steps("7.0"))
    site.says("node", NODE.format(state="DOWN+NOT_RESPONDING"))
    site.says("config", CONFIG.format(plugins=tmp_path / "plugins", timeout=1))
    return site


@pytest.fixture
def site(bare: Site, libraries: dict[str, Path]) -> Site:
    """A running batch job without its host n0, with the commands and the library of 24.11."""
    (bare.folder / "plugins").mkdir()
    (bare.folder / "plugins/libslurmfull.so").symlink_to(libraries["24.11"])
    return bare


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the bound to SlurmdTimeout alone: one second in these answers."""
    monkeypatch.setattr(completion, "MARGIN", 0.0)
    monkeypatch.setattr(completion, "USUAL_SLURMD_TIMEOUT", 1.0)


def test_host_taken_out_of_the_job(site: Site) -> None:
    site.says("node", NODE.format(state="IDLE"))  # 24.11, just after an administrator set it down
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0"]
    assert site.events == ["completing_job", "job_completed"]


@pytest.mark.parametrize("listed", [("7.0",), ("7.0", "7.batch")], ids=["24.11", "22.05"])
def test_new_slurmctld_takes_another_node_for_the_batch_host(
    site: Site, listed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-3]")
    site.job(host="n1")
    site.says("step", steps(*listed))
    site.says("node", NODE.format(state="MIXED"))
    assert site.complete() == CompletionResult.COMPLETED


def test_batch_script_need_not_run_on_the_first_node(site: Site, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script runs on another node by sbatch --batch; the first node was lost, the script's own lives."""
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[0-3]")
    site.job(host="n1")
    site.says("step", steps("7.0", "7.batch", host="n1"))
    site.says("node", NODE.format(state="MIXED").replace("NodeName=n0", "NodeName=n1"))
    assert site.complete() == CompletionResult.LEFT
    assert "lists the batch host n1 as MIXED" in site.left()


@pytest.mark.parametrize(("code", "status"), [(0, 0), (1, 256), (75, 19200), (255, 65280)])
def test_code_becomes_a_wait_status(site: Site, code: int, status: int) -> None:
    assert site.complete(code) == CompletionResult.COMPLETED
    assert site.calls() == [f"7 {status}"]
    assert os.waitstatus_to_exitcode(status) == code


@pytest.mark.parametrize("code", [-1, 256])
def test_codes_that_are_none(site: Site, code: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 255"):
        site.complete(code)
    assert site.calls() == []


def test_prototypes(bare: Site, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for release in ("25.05", "25.11"):
        bare.says("config", CONFIG.format(plugins=f"/nowhere:{libraries[release].parent}", timeout=1))
        assert bare.complete(75) == CompletionResult.COMPLETED
    assert bare.calls() == ["7 19200", "0 7 fffffffe fffffffe 19200"]


@pytest.mark.parametrize("state", ["DOWN", "DOWN+DRAIN+NOT_RESPONDING", "IDLE+CLOUD+POWERED_DOWN", ""])
def test_host_that_slurm_has_given_up(site: Site, state: str) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state=state) if state else "")
    assert site.complete() == CompletionResult.COMPLETED
    assert "waiting_to_complete_job" not in site.events


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"node": NODE.format(state="MIXED+NOT_RESPONDING")}, {"node": NODE.format(state="DOWN+NOT_RESPONDING")}),
        ({"step": steps("7.0", "7.batch", "7.12")},
         {"step": steps("7.0") + STEP.format(step="7.12", state="COMPLETED")}),
        ({"away": AWAY}, {"away": None}),
    ],
    ids=["host not yet down", "another step", "slurmctld away"],
)  # fmt: skip
def test_waits(site: Site, before: dict[str, str], after: dict[str, str | None]) -> None:
    site.job(nodes="n[0-3]")
    for kind, text in before.items():
        site.says(kind, text)
    asked = 0

    def waiting(event: str, fields: dict[str, object]) -> None:
        nonlocal asked
        if event == "waiting_to_complete_job":
            assert site.calls() == []
            asked += 1
            for kind, text in after.items():
                (site.folder / kind).unlink()
                if text is not None:
                    site.says(kind, text)

    site.on_line = waiting
    assert site.complete() == CompletionResult.COMPLETED
    assert (asked, len(site.calls())) == (1, 1)


def test_silent_host_counts_as_dead_when_the_time_is_over(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED+NOT_RESPONDING"))
    began = time.monotonic()
    assert site.complete() == CompletionResult.COMPLETED
    assert time.monotonic() - began >= 1.0
    assert site.events == ["waiting_to_complete_job", "completing_job", "job_completed"]


def test_answering_host_is_left_with_its_script(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED"))
    assert site.complete() == CompletionResult.LEFT
    assert "lists the batch host n0 as MIXED" in site.left()
    assert site.calls() == []


def test_slurmctld_that_was_away_need_not_have_noticed(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED"))
    site.says("away", AWAY)
    back = iter([site.folder / "away"])

    def waiting(event: str, fields: dict[str, object]) -> None:
        for path in back:
            path.unlink()

    site.on_line = waiting
    assert site.complete() == CompletionResult.COMPLETED
    away, mixed = [str(fields["why"]) for event, fields in site.lines if event == "waiting_to_complete_job"]
    assert "Unable to contact" in away and "lists the batch host n0 as MIXED" in mixed


def test_no_host_is_ever_given_up_where_slurmd_timeout_is_0(site: Site, short: None) -> None:
    site.job(nodes="n[0-3]")
    site.says("node", NODE.format(state="MIXED"))
    site.says("config", CONFIG.format(plugins=site.folder / "plugins", timeout=0))
    assert site.complete() == CompletionResult.COMPLETED


@pytest.mark.parametrize("kind", ["step", "suspended", "away"])
def test_what_does_not_end_in_time(site: Site, short: None, kind: str) -> None:
    if kind == "step":
        site.says("step", steps("7.1"))
    elif kind == "suspended":
        site.job(state="SUSPENDED")
    else:
        site.says("away", AWAY)
    assert site.complete() == CompletionResult.LEFT
    expected = {"step": "other steps of the job run: 1", "suspended": "the job is SUSPENDED"}
    assert expected.get(kind, "Unable to contact slurm controller") in site.left()
    assert site.calls() == []


@pytest.mark.parametrize("state", ["COMPLETING", "COMPLETED", "CANCELLED", "TIMEOUT", "PENDING", "NODE_FAIL"])
def test_job_that_is_over(site: Site, state: str) -> None:
    site.job(state=state)
    assert site.complete() == CompletionResult.NOTHING
    assert (site.events, site.calls()) == (["nothing_to_complete"], [])


def test_forgotten_job(site: Site) -> None:
    site.says("away", "slurm_load_jobs error: Invalid job id specified\n")
    assert site.complete() == CompletionResult.NOTHING


def test_job_without_a_batch_script(bare: Site) -> None:
    bare.job(batch=0)
    assert bare.complete() == CompletionResult.NOTHING
    assert "no batch script" in str(bare.lines[0][1]["why"])


def test_job_that_was_started_anew(site: Site) -> None:
    site.job(restarts=2)
    assert site.complete(restart_count=1) == CompletionResult.NOTHING
    assert site.calls() == []
    assert site.complete(restart_count=2) == CompletionResult.COMPLETED


def test_task_of_an_array(site: Site) -> None:
    first = job_line(array="ArrayJobId=7 ArrayTaskId=4 ")
    other = job_line(id=8, array="ArrayJobId=7 ArrayTaskId=3 ", state="FAILED")
    site.says("job", other + first)
    site.says("step", steps("7_3.1", "7_4.0", "7_3.batch"))
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0"]


def test_part_of_a_heterogeneous_job(site: Site) -> None:
    site.job(array="HetJobId=7 HetJobOffset=0 ")
    assert site.complete() == CompletionResult.LEFT
    assert "heterogeneous" in site.left()


def test_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "2010")
    assert site.complete() == CompletionResult.LEFT
    assert "Access/permission denied (2010)" in site.left()
    assert len(site.calls()) == 1


def test_job_that_has_ended_meanwhile(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "2021")
    assert site.complete() == CompletionResult.COMPLETED


def test_call_that_does_not_reach_slurmctld_is_made_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "1800")

    def waiting(event: str, fields: dict[str, object]) -> None:
        if event == "waiting_to_complete_job":
            assert "Connect failure (1800)" in str(fields["why"])
            monkeypatch.delenv("FT_ERROR")

    site.on_line = waiting
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0", "7 0"]


def test_the_signal_that_a_completion_brings_does_not_lose_its_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld signals every process of the job, the caller included."""
    monkeypatch.setenv("FT_SIGNALLED", "1")
    assert site.complete() == CompletionResult.COMPLETED
    assert site.events == ["completing_job", "job_completed"]
    assert site.calls() == ["7 0"]


def test_answer_that_was_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_ERROR", "1800")
    site.on_line = lambda event, fields: site.job(state="COMPLETED") if event == "completing_job" else None
    assert site.complete() == CompletionResult.COMPLETED
    assert site.calls() == ["7 0"]


def test_library_that_ends_its_process(site: Site, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_FATAL", "1")
    assert site.complete() == CompletionResult.LEFT
    assert "ended its process: fatal: Could not establish a configuration source" in site.left()


def test_library_that_hangs(site: Site, short: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FT_HANG", "1")
    monkeypatch.setattr("ft_slurm.complete_job.TIMEOUT", 3.0)
    assert site.complete() == CompletionResult.LEFT
    assert "has not answered within 3 s" in site.left()
    assert site.calls()


def test_library_that_is_none(site: Site) -> None:
    (site.folder / "plugins/libslurmfull.so").unlink()
    (site.folder / "plugins/libslurmfull.so").write_text("no library\n")
    assert site.complete() == CompletionResult.LEFT
    assert re.search(r"libslurmfull\.so: (file too short|invalid ELF header)", site.left())


def test_no_library(bare: Site) -> None:
    assert bare.complete() == CompletionResult.LEFT
    assert bare.left() == "there is no libslurmfull.so here"


def test_library_beside_the_commands(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-ins of slurmctld's own machine lie elsewhere."""
    (site.folder / "lib64").mkdir()
    (site.folder / "plugins").rename(site.folder / "lib64/slurm")
    assert site.complete() == CompletionResult.COMPLETED
    (site.folder / "lib64").rename(site.folder / "elsewhere")
    assert site.complete() == CompletionResult.LEFT
    monkeypatch.setenv("SLURM_LIB_DIR", str(site.folder / "elsewhere"))
    assert site.complete() == CompletionResult.COMPLETED


def test_container_without_slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(site.folder / "plugins"))
    assert site.complete() == CompletionResult.LEFT
    assert site.left() == "there is no scontrol in PATH, and pyslurm is not installed"
    assert site.calls() == []


@pytest.fixture
def pyslurm(site: Site, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Site:
    """No commands, but pyslurm's stand-in, by which job 4242's host is gone and its step 0 runs, and the library."""
    fake = Path(__file__).parent / "fake_pyslurm"
    monkeypatch.syspath_prepend(fake)
    for name, value in {"PATH": "/nowhere", "PYTHONPATH": fake, "FAKE_PYSLURM": site.folder}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("SLURM_LIB_DIR", str(site.folder / "plugins"))
    return site


def test_by_pyslurm_where_there_are_no_commands(pyslurm: Site) -> None:
    assert completion.batch_host(4242, restart_count=0, timeout=60.0) == BatchHostState.GONE
    assert completion.complete(4242, 0, 75, restart_count=0, log=pyslurm.log) == CompletionResult.COMPLETED
    assert pyslurm.calls() == ["4242 19200"]
    assert completion.complete(4242, 0, 75, restart_count=1, log=pyslurm.log) == CompletionResult.NOTHING
    assert completion.complete(4, 0, 75, log=pyslurm.log) == CompletionResult.NOTHING
    assert pyslurm.calls() == ["4242 19200"]


def test_by_pyslurm_another_step_is_waited_for(pyslurm: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "MARGIN", -completion.USUAL_SLURMD_TIMEOUT)
    assert completion.complete(4242, 3, 0, log=pyslurm.log) == CompletionResult.LEFT
    ((_, fields),) = [line for line in pyslurm.lines if line[0] == "job_left_running"]
    assert fields["why"] == "other steps of the job run: 0"
    assert pyslurm.calls() == []


@pytest.mark.parametrize(
    ("nodes", "listed", "node", "expected"),
    [
        ("n[0-3]", ("7.0", "7.batch"), "MIXED", BatchHostState.MEMBER),
        ("n[0-3]", ("7.0",), "IDLE+DRAIN", BatchHostState.MEMBER),
        ("n[0-3]", ("7.0", "7.batch"), "MIXED+NOT_RESPONDING", BatchHostState.SILENT),
        ("n[0-3]", ("7.0", "7.batch"), "DOWN", BatchHostState.GONE),
        ("n[1-3]", ("7.0",), "DOWN", BatchHostState.GONE),
        ("n[1-3]", ("7.0", "7.batch"), "DOWN", BatchHostState.GONE),  # 22.05 lists it for good
        ("n[1-3]", ("7.0",), "IDLE", BatchHostState.GONE),  # slurmd is back
    ],
)
def test_what_slurmctld_makes_of_the_batch_host(
    bare: Site, nodes: str, listed: tuple[str, ...], node: str, expected: BatchHostState
) -> None:
    bare.job(nodes=nodes)
    bare.says("step", steps(*listed))
    bare.says("node", NODE.format(state=node))
    assert completion.batch_host(7, restart_count=0, timeout=60.0) == expected


@pytest.mark.parametrize(
    "fields", [{"state": "COMPLETING"}, {"state": "COMPLETED"}, {"batch": 0}, {"restarts": 1}, {"id": 8}], ids=str
)
def test_there_is_no_script_to_wait_for(bare: Site, fields: dict[str, object]) -> None:
    bare.job(**fields)
    if "id" in fields:
        bare.says("away", "slurm_load_jobs error: Invalid job id specified\n")
    assert completion.batch_host(7, restart_count=0, timeout=60.0) == BatchHostState.NONE


def test_a_host_that_only_slurm_had_lost_is_left_alone_once_it_answers(site: Site) -> None:
    site.job(nodes="n[0-3]")
    site.says("step", steps("7.0", "7.batch", "7.9"))
    site.says("node", NODE.format(state="MIXED+NOT_RESPONDING"))

    def waiting(event: str, fields: dict[str, object]) -> None:
        if event == "waiting_to_complete_job":
            site.says("node", NODE.format(state="MIXED"))

    site.on_line = waiting
    assert completion.complete(7, 0, 0, restart_count=0, host_lost=False, log=site.log) == CompletionResult.NOTHING
    assert site.events == ["waiting_to_complete_job", "nothing_to_complete"]
    assert site.calls() == []


def test_slurmctld_does_not_say(bare: Site) -> None:
    bare.says("away", AWAY)
    with pytest.raises(Unanswered, match="Unable to contact"):
        completion.batch_host(7, restart_count=0, timeout=60.0)
    assert bare.lines == []


def test_questions_go_to_the_own_cluster(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = site.folder / "bin/scontrol"
    scontrol.write_text(scontrol.read_text().replace("here=", "${SLURM_CLUSTERS:+exit 9}\nhere="))
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    assert site.complete() == CompletionResult.COMPLETED


@pytest.fixture
def wrapper(tmp_path: Path) -> Iterator[Path]:
    """Write a script that starts a command which does not end, and prints its process id."""
    path = tmp_path / "wrapper"
    path.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! > {tmp_path}/pid\nwait\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    yield path
    started = Path("/proc", (tmp_path / "pid").read_text().strip(), "exe")
    end = time.monotonic() + 60
    while started.exists():  # it was sent SIGKILL, and needs a moment to die
        assert time.monotonic() < end, "it was left running"
        time.sleep(0.01)


def test_command_that_hangs_is_killed_with_what_it_started(wrapper: Path) -> None:
    began = time.monotonic()
    with pytest.raises(command.Unanswered, match="not answered within 2 s"):
        command.run([str(wrapper)], 2.0, os.environ)
    assert time.monotonic() - began < 60


def test_command_that_says_a_little_for_ever() -> None:
    began = time.monotonic()
    with pytest.raises(command.Unanswered, match="not answered within 1 s"):
        command.run(["sh", "-c", "while :; do echo x; sleep 0.02; done"], 1.0, os.environ)
    assert time.monotonic() - began < 30


def test_command_whose_child_keeps_its_output_open() -> None:
    with pytest.raises(command.Unanswered, match=r"not answered within 1 s$"):
        command.run(["sh", "-c", "sleep 1000 & echo x"], 1.0, os.environ)


def test_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(command.Unanswered, match="cannot be started: No such file"):
        command.run([str(tmp_path / "nothing")], 2.0, os.environ)
