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
    """Report the interpreter that runs this, which submit and launch use as well."""
    version = ".".join(map(str, sys.version_info[:3]))
    where = f"{version}, {sys.executable}"
    return [ok("python", where), installed(here)]


def installed(here: Environment) -> Finding:
    """Check that a batch script would find this ft-supervisor."""
    version = own_version()
    found = shutil.which(PACKAGE, path=here.environ.get("PATH"))
    if found is None:
        text = f"{version}; there is no {PACKAGE} in PATH"
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
    """Return whether the program belongs to this interpreter's virtual environment."""
    return Path(program).parent.parent.resolve() == Path(sys.prefix).resolve()


def own_version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "not installed"


def torch(here: Environment) -> list[Finding]:
    """Import torch in a process of its own: the import takes seconds and 200 MB, and may hang on a file system."""
    began = time.monotonic()
    program = [sys.executable, "-P", "-c", "import torch; print(torch.__version__)"]
    try:
        done = command.run(program, IMPORT_BOUND, dict(here.environ))
    except Unanswered as error:
        return [fail("torch", f"import torch: {error}", "put the environment on a faster file system")]
    if done.code:
        todo = f"{sys.executable} -c 'import torch' prints the whole error"
        if "No module named 'torch'" in done.problem:
            todo = "pip install torch into this environment"
        return [fail("torch", f"import torch fails: {done.problem}", todo)]
    return [judge_torch(done.stdout.strip().splitlines()[-1], wanted_torch(), time.monotonic() - began)]


def wanted_torch() -> str:
    """Return our own package's requirement, such as `torch>=2.9`; "" where the package is not installed."""
    try:
        wanted = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return ""
    return next((each for each in wanted if re.match(r"torch\b", each)), "")


def judge_torch(version: str, requirement: str, took: float) -> Finding:
    """Judge torch's version, and the seconds that its import `took`."""
    text = f"{version}, imported in {took:.1f} s"
    least = re.search(r">=\s*(\d+(?:\.\d+)*)", requirement)
    if least and _numbers(version) < _numbers(least[1]):
        return fail("torch", f"{version} is too old for {requirement}", "pip install --upgrade torch")
    if took > SLOW_IMPORT:
        return warn("torch", f"{text}: each start of an agent takes that long", "put the environment on a faster disk")
    return ok("torch", text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"[+a-z]", version)[0]))


def kernel(_place: Environment) -> list[Finding]:
    """Check that the kernel has pidfds, without which no worker's end is noticed."""
    release = os.uname().release
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError) as error:
        text = f"Linux {release} has no pidfds here: {error}"
        return [fail("kernel", text, "Linux 5.3 or newer, and no seccomp filter against pidfd_open")]
    return [ok("kernel", f"Linux {release}")]


def limits(here: Environment) -> list[Finding]:
    """Check the limit of open files: the coordinator's process has two connections to each agent."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [judge_files(hard, len(here.nodes))]


def judge_files(hard: int, nodes: int) -> Finding:
    """Judge the number of open files. `hard`: the limit that a process can give itself, -1 for none."""
    needed = 256 + 4 * nodes
    if hard == resource.RLIM_INFINITY or hard >= max(needed, 1024):
        return ok("open files", "no limit" if hard == resource.RLIM_INFINITY else f"at most {hard}")
    text = f"at most {hard}, and a coordinator of {nodes or 'many'} nodes needs about {max(needed, 1024)}"
    return (fail if hard < needed else warn)("open files", text, "ask the site for a higher hard limit (ulimit -Hn)")


def tools(here: Environment) -> list[Finding]:
    """Check for programs that are used where they are installed."""
    path = here.environ.get("PATH")
    found = []
    if shutil.which("setpriv", path=path):
        found.append(ok("setpriv", "here"))
    else:
        text = "not here: if launch is killed, its srun stays until the job's end"
        found.append(warn("setpriv", text, "install util-linux"))
    if spy := shutil.which("py-spy", path=path):
        return [*found, ok("py-spy", spy)]
    if here.config is not None and here.config.settings.hang is not None:
        text = "not here: a worker that hangs leaves stacks only if it has registered faulthandler"
        return [*found, warn("py-spy", text, "pip install py-spy")]
    return [*found, ok("py-spy", "not here, and without `hang` not needed")]


def gpus(here: Environment) -> list[Finding]:
    """Ask NVML about the GPUs, in a process of its own: it may hang on a faulty GPU."""
    wanted = here.config is not None and (here.config.per_node == "gpu" or here.config.settings.health.gpu is not None)
    program = [sys.executable, "-P", "-m", nvml.__name__]
    try:
        done = command.run(program, NVML_BOUND, dict(here.environ))
    except Unanswered as error:
        return [fail("gpus", str(error), "a GPU may be faulty: see nvidia-smi and dmesg")]
    on_node = here.where is not Where.OUTSIDE
    return [judge_gpus(done.code, " ".join(f"{done.stdout} {done.stderr}".split()), wanted and on_node)]


def judge_gpus(code: int, said: str, wanted: bool) -> Finding:
    """Judge the exit code of daemon/nvml.py. `wanted`: this is a node of a job that uses GPUs."""
    if code == 0:
        return ok("gpus", "NVML finds nothing wrong")
    if code == nvml.PROBLEMS:
        return fail("gpus", said, "report the node to the site; health.gpu: exclude keeps jobs off it")
    if wanted:
        return warn("gpus", said, "health.gpu and topology.domain nvlink do not work without NVML")
    return ok("gpus", f"not asked for here ({said})")


def local_files(_place: Environment) -> list[Finding]:
    """Check /tmp, which holds journals, sockets and each node's copy of the verdict."""
    base = local_folder("x").parent
    if base.is_symlink() or (base.exists() and base.lstat().st_uid != os.getuid()):
        return [fail("/tmp", f"{base} is not yours", "have it removed")]
    try:
        with tempfile.NamedTemporaryFile(dir=base.parent, prefix=".ft-doctor.") as file:
            file.write(b"x" * 4096)
            file.flush()
        found = os.statvfs(base.parent)
    except OSError as error:
        return [fail("/tmp", f"not writable: {error.strerror}", "the daemons keep journals and verdicts there")]
    return [judge_local(found.f_bavail * found.f_frsize)]


def judge_local(free: int) -> Finding:
    """Judge the number of free bytes."""
    text = f"{free / 2**20:.0f} MiB free"
    if free < LOCAL_MIN:
        return warn("/tmp", f"{text}; a node's journals may take {LOCAL_MIN / 2**20:.0f} MiB", "make room")
    return ok("/tmp", text)


def memory_kills(here: Environment) -> list[Finding]:
    """Check, on a job's node, that the kernel's count of out-of-memory kills can be read."""
    if here.where is Where.OUTSIDE:
        return []
    if Counter.open(os.getpid()) is not None:
        return [ok("oom", "the kernel counts the processes that it kills when memory is short")]
    text = "no cgroup here counts the processes that the kernel kills when memory is short: rules for oom do not match"
    return [warn("oom", text, "match {signal: SIGKILL}, or ask the site for cgroups")]


def configuration(config: JobConfig | None, problem: str, note: str = "") -> list[Finding]:
    """Report on the file of --config. `problem`: why it could not be loaded; `note`: which part of it is not known."""
    if problem:
        return [fail("config", problem, "correct it, and check it with ft-supervisor validate")]
    if config is None:
        return [ok("config", "none given; --config job.yaml adds more checks")]
    found = ok("config", f"job {config.name}{f'; {config.policy_note}' if config.policy_note else ''}")
    return [found, warn("policy", note, "look again when Slurm answers")] if note else [found]
