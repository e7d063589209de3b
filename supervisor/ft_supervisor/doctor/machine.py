"""Checks of this machine: what is installed, what the user may do, and what the kernel can."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from ft_slurm import command
from ft_slurm.errors import Unanswered
from ft_supervisor.agent.memory_kills import Counter
from ft_supervisor.config import JobConfig
from ft_supervisor.daemon import nvml
from ft_supervisor.daemon.identity import local_folder
from ft_supervisor.doctor.environment import Environment, Where
from ft_supervisor.doctor.finding import Finding, fail, ok, warn

PACKAGE = "ft-supervisor"
IMPORT_BOUND = 50.0
"""Seconds for torch's import; from a cold network file system it has taken most of a minute."""
SLOW_IMPORT = 20.0
NVML_BOUND = 20.0
LOCAL_MIN = 256 * 2**20
"""Bytes: three journals of at most 64 MiB, and copies."""


def python(here: Environment) -> list[Finding]:
    """The interpreter that runs this, which submit and launch go on with."""
    version = ".".join(map(str, sys.version_info[:3]))
    where = f"{version}, {sys.executable}"
    return [ok("python", where), installed(here)]


def installed(here: Environment) -> Finding:
    """Whether the ft-supervisor that a batch script would find is this one."""
    version = own_version()
    found = shutil.which(PACKAGE, path=here.environ.get("PATH"))
    if found is None:
        text = f"{version}; there is none in PATH"
        return warn(PACKAGE, text, f"activate its environment, or put {Path(sys.executable).parent} into PATH")
    if Path(found).resolve().parent == Path(sys.executable).parent.resolve() or same_prefix(found):
        return ok(PACKAGE, f"{version}, {found}")
    try:
        other = command.run([found, "--version"], IMPORT_BOUND, dict(here.environ)).stdout.strip()
    except Unanswered as error:
        other = str(error)
    text = f"{version} is running, and in PATH is {found}: {other}"
    if other.endswith(f" {version}"):
        return ok(PACKAGE, text)
    return warn(PACKAGE, text, "activate the environment that the job is to run in")


def same_prefix(program: str) -> bool:
    """Whether it belongs to this interpreter's virtual environment."""
    return Path(program).parent.parent.resolve() == Path(sys.prefix).resolve()


def own_version() -> str:
    """Of the installed package."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "not installed"


def torch(here: Environment) -> list[Finding]:
    """In a process of its own: the import takes seconds and 200 MB, and may hang on a file system."""
    began = time.monotonic()
    program = [sys.executable, "-P", "-c", "import torch; print(torch.__version__)"]
    try:
        done = command.run(program, IMPORT_BOUND, dict(here.environ))
    except Unanswered as error:
        return [fail("torch", f"import torch: {error}", "put the environment on a faster file system")]
    if done.code:
        todo = f"{sys.executable} -c 'import torch' tells all of it"
        if "No module named 'torch'" in done.problem:
            todo = "pip install torch into this environment"
        return [fail("torch", f"import torch fails: {done.problem}", todo)]
    return [judge_torch(done.stdout.strip().splitlines()[-1], wanted_torch(), time.monotonic() - began)]


def wanted_torch() -> str:
    """The requirement of our own package, such as `torch>=2.9`; "" where it is not installed."""
    try:
        wanted = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return ""
    return next((each for each in wanted if re.match(r"torch\b", each)), "")


def judge_torch(version: str, requirement: str, took: float) -> Finding:
    """`took`: seconds of the import."""
    text = f"{version}, imported in {took:.1f} s"
    least = re.search(r">=\s*(\d+(?:\.\d+)*)", requirement)
    if least and _numbers(version) < _numbers(least[1]):
        return fail("torch", f"{version} is too old for {requirement}", "pip install --upgrade torch")
    if took > SLOW_IMPORT:
        return warn("torch", f"{text}: so long takes each start of an agent", "put the environment on a faster disk")
    return ok("torch", text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[+a-z]", version)[0]))


def kernel(_place: Environment) -> list[Finding]:
    """pidfds, without which no worker's end is seen."""
    release = os.uname().release
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        text = f"Linux {release} has no pidfds here: {error}"
        return [fail("kernel", text, "Linux 5.3 or newer, and no seccomp filter against pidfd_open")]
    return [ok("kernel", f"Linux {release}")]


def limits(here: Environment) -> list[Finding]:
    """Open files: two connections for each agent, in the coordinator's process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [judge_files(hard, len(here.nodes))]


def judge_files(hard: int, nodes: int) -> Finding:
    """`hard`: the limit that a process can give itself, -1 for none."""
    needed = 256 + 4 * nodes
    if hard == resource.RLIM_INFINITY or hard >= max(needed, 1024):
        return ok("open files", "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}")
    text = f"at most {hard}, and a coordinator of {nodes or 'many'} nodes needs about {max(needed, 1024)}"
    return (fail if hard < needed else warn)("open files", text, "ask the site for a higher hard limit (ulimit -Hn)")


def tools(here: Environment) -> list[Finding]:
    """Programs that are used where they are there."""
    path = here.environ.get("PATH")
    found = []
    if shutil.which("setpriv", path=path):
        found.append(ok("setpriv", "here"))
    else:
        text = "not here: should launch be killed, its srun stays until the job's end"
        found.append(warn("setpriv", text, "install util-linux"))
    if spy := shutil.which("py-spy", path=path):
        return [*found, ok("py-spy", spy)]
    if here.config is not None and here.config.settings.hang is not None:
        text = "not here: of a worker that hangs there are stacks only if it has registered faulthandler"
        return [*found, warn("py-spy", text, "pip install py-spy")]
    return [*found, ok("py-spy", "not here, and without `hang` not needed")]


def gpus(here: Environment) -> list[Finding]:
    """What NVML says, in a process of its own: it may hang on a sick GPU."""
    wanted = here.config is not None and (here.config.per_node == "gpu" or here.config.settings.health.gpu is not None)
    program = [sys.executable, "-P", "-m", nvml.__name__]
    try:
        done = command.run(program, NVML_BOUND, dict(here.environ))
    except Unanswered as error:
        return [fail("gpus", str(error), "a GPU may be sick: nvidia-smi, dmesg")]
    on_node = here.where is not Where.OUTSIDE
    return [judge_gpus(done.code, " ".join(f"{done.stdout} {done.stderr}".split()), wanted and on_node)]


def judge_gpus(code: int, said: str, wanted: bool) -> Finding:
    """By the exit code of daemon/nvml.py; `wanted`: the job, which is here, has use for GPUs."""
    if code == 0:
        return ok("gpus", "NVML finds nothing wrong")
    if code == nvml.PROBLEMS:
        return fail("gpus", said, "have the node looked after; health.gpu: exclude keeps jobs off it")
    if wanted:
        return warn("gpus", said, "without NVML health.gpu and topology.domain nvlink have nothing to ask")
    return ok("gpus", f"not asked for here ({said})")


def local_files(_place: Environment) -> list[Finding]:
    """/tmp: journals, sockets and each node's copy of the verdict."""
    base = local_folder("x").parent
    if base.is_symlink() or (base.exists() and base.lstat().st_uid != os.getuid()):
        return [fail("/tmp", f"{base} is not yours", "have it removed")]
    try:
        with tempfile.NamedTemporaryFile(dir=base.parent, prefix=".ft-doctor.") as file:
            file.write(b"x" * 4096)
            file.flush()
        found = os.statvfs(base.parent)
    except OSError as error:
        return [fail("/tmp", f"not writable: {error.strerror}", "the daemons keep what they know there")]
    return [judge_local(found.f_bavail * found.f_frsize)]


def judge_local(free: int) -> Finding:
    """By the bytes that are free."""
    text = f"{free / 2**20:.0f} MiB free"
    if free < LOCAL_MIN:
        return warn("/tmp", f"{text}; a node's journals may take {LOCAL_MIN / 2**20:.0f} MiB", "make room")
    return ok("/tmp", text)


def memory_kills(here: Environment) -> list[Finding]:
    """Whether the kernel's count of processes that it has killed for want of memory can be read, on a job's node."""
    if here.where is Where.OUTSIDE:
        return []
    if Counter.open(os.getpid()) is not None:
        return [ok("oom", "the kernel tells how many processes it has killed for want of memory")]
    text = "no cgroup here tells of processes that were killed for want of memory: rules for oom do not match"
    return [warn("oom", text, "match {signal: SIGKILL}, or ask the site for cgroups")]


def configuration(config: JobConfig | None, problem: str, note: str = "") -> list[Finding]:
    """Of the file that --config names; `problem`: why it could not be loaded; `note`: what is not known of it."""
    if problem:
        return [fail("config", problem, "ft-supervisor validate tells when it is right")]
    if config is None:
        return [ok("config", "none given; with --config job.yaml more is looked at")]
    found = ok("config", f"job {config.name}{f'; {config.policy_note}' if config.policy_note else ''}")
    return [found, warn("policy", note, "look again when Slurm answers")] if note else [found]
