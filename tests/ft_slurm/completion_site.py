"""A folder with Slurm's answers: scontrol as a script, and a library that records its calls.

The answers are output of scontrol 22.05 and 24.11. The library is compiled here with Slurm's declarations.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ft_slurm import completion, libslurm
from ft_slurm.completion import CompletionResult

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
