"""Judges Slurm's configuration, as `scontrol show config` prints it, by its consequences for a job. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ft_slurm import ports
from ft_supervisor.config import JobConfig
from ft_supervisor.core.protocol.model import CONFIG_ERROR, EXIT_CODES, NEVER_AGAIN, Outcome, Timeouts
from ft_supervisor.doctor.finding import Finding, ok, warn
from ft_supervisor.submit.options import requeues

Conf = Mapping[str, str]
USUAL_SLURMD_TIMEOUT = 300.0
FINAL = (EXIT_CODES[Outcome.FAILED], CONFIG_ERROR, NEVER_AGAIN, EXIT_CODES[Outcome.CANCELLED])
"""Exit codes of jobs that must not run again unchanged."""


def judge(conf: Conf, config: JobConfig | None) -> list[Finding]:
    """Return one finding for each setting that matters and that this release prints."""
    found = [check(conf, config) for check in CHECKS]
    return [finding for finding in found if finding is not None]


def plain(conf: Conf, key: str) -> str:
    """Return the value; "" for a value that is not set, or none."""
    value = conf.get(key, "").strip()
    return "" if value in ("(null)", "N/A", "none", "NONE") or value.endswith("/none") else value


def seconds(conf: Conf, key: str) -> float | None:
    """Return the seconds of `300 sec`; None where the value is missing."""
    match = re.match(r"(\d{1,9})(?: sec)?\b", plain(conf, key))
    return float(match[1]) if match else None


def kill_on_bad_exit(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if "KillOnBadExit" not in conf:
        return None
    if plain(conf, "KillOnBadExit") in ("0", "No", ""):
        return ok("KillOnBadExit", "0")
    return warn(
        "KillOnBadExit",
        "a task that fails ends its whole step",
        "launch overrules it; an srun line of your own needs --kill-on-bad-exit=0",
    )


def wait_time(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if (wait := seconds(conf, "WaitTime")) is None:
        return None
    if not wait:
        return ok("WaitTime", "0")
    text = f"srun kills a step {wait:.0f} s after its first task has ended"
    return warn("WaitTime", text, "launch overrules it; an srun line of your own needs --wait=0")


def slurmd_timeout(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if (timeout := seconds(conf, "SlurmdTimeout")) is None:
        return None
    if not timeout:
        text = "0: Slurm never gives a dead node up, and a job whose batch host dies is ended late"
        return warn("SlurmdTimeout", text, "ask the site for 300")
    text = f"a silent node is DOWN after {timeout:.0f} s; ft-supervisor does not wait for that"
    if timeout <= 2 * USUAL_SLURMD_TIMEOUT:
        return ok("SlurmdTimeout", text)
    return warn("SlurmdTimeout", f"{text}, but the end of a job whose batch host died does", "ask the site for 300")


def kill_wait(conf: Conf, config: JobConfig | None) -> Finding | None:
    if (wait := seconds(conf, "KillWait")) is None:
        return None
    times = config.timeouts if config is not None else Timeouts()
    longest = max(("restart_grace", times.restart_grace), ("stop_grace", times.stop_grace), key=lambda each: each[1])
    text = f"after scancel or at the time limit Slurm kills what is left {wait:.0f} s after SIGTERM"
    if longest[1] <= wait:
        return ok("KillWait", text)
    todo = f"do not count on more, or lower timeouts.{longest[0]} to {wait:.0f}s"
    return warn("KillWait", f"{text}, before {longest[0]} ({longest[1]:g} s) is over", todo)


def accounting(conf: Conf, config: JobConfig | None) -> Finding | None:
    if "AccountingStorageType" not in conf:
        return None
    if not plain(conf, "AccountingStorageType"):
        text = "Slurm keeps no records: sacct shows nothing, and reports contain only what is in run_dir"
        return warn("accounting", text, "keep run_dir, or ask the site for slurmdbd")
    wanted = config is None or config.settings.accounting.comment
    # Until 21.08 comments were always kept, under another key.
    if wanted and "AccountingStoreFlags" in conf and "job_comment" not in plain(conf, "AccountingStoreFlags"):
        text = "sacct does not keep comments, in which ft-supervisor writes the job's outcome"
        return warn("accounting", text, "ask the site for AccountingStoreFlags=job_comment")
    return ok("accounting", "Slurm keeps records of jobs")


def proctrack(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if not (plugin := plain(conf, "ProctrackType").removeprefix("proctrack/")):
        return None
    if plugin == "cgroup":
        return ok("ProctrackType", "cgroup: no process outlives the job")
    text = f"{plugin}: a process that a worker has forked twice outlives a job whose daemon was killed"
    return warn("ProctrackType", text, "ask the site for proctrack/cgroup")


def memory(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if "JobAcctGatherType" not in conf:
        return None
    if "OverMemoryKill" in plain(conf, "JobAcctGatherParams"):
        text = "JobAcctGatherParams=OverMemoryKill: Slurm ends the step, not one worker, when memory is short"
        return warn("memory", text, "ask the site for ConstrainRAMSpace in cgroup.conf instead")
    if "cgroup" not in plain(conf, "TaskPlugin"):
        text = "without task/cgroup jobs share a node's memory: one that takes too much can cost others their workers"
        return warn("memory", text, "ask for whole nodes (--exclusive)")
    return ok("memory", "cgroups count the processes that are killed when memory is short")


def prolog(conf: Conf, config: JobConfig | None) -> Finding | None:
    if "PrologFlags" not in conf:
        return None
    flags = plain(conf, "PrologFlags")
    has_prolog = any(plain(conf, key) for key in conf if re.fullmatch(r"Prolog(\[\d+\])?", key))
    if not has_prolog or {"alloc", "contain"} & set(flags.lower().split(",")):
        return ok("PrologFlags", flags or "none")
    join = (config.timeouts if config is not None else Timeouts()).join
    text = f"the site's prolog runs on each node when the step starts there, within timeouts.join ({join:g} s)"
    return ok("PrologFlags", text)


def requeue(conf: Conf, config: JobConfig | None) -> Finding | None:
    if "JobRequeue" not in conf:
        return None
    if plain(conf, "JobRequeue") not in ("0", "No"):
        return ok("JobRequeue", "1: jobs may be run again")
    if config is not None and requeues(config):
        text = "0, and the policy has Slurm run the job again"
        return warn("JobRequeue", text, "submit gives --requeue; a batch script of your own needs it")
    return ok("JobRequeue", "0; the policy does not need it")


def requeue_exit(conf: Conf, _config: JobConfig | None) -> Finding | None:
    """Check the exit codes after which Slurm runs any job again, or holds it (slurm.conf(5): `1-9,93`)."""
    given = {key: plain(conf, key) for key in ("RequeueExit", "RequeueExitHold") if key in conf}
    if not given:
        return None
    listed = [(int(low), int(high or low)) for text in given.values() for low, high in _CODES.findall(text)]
    hit = [str(code) for code in FINAL if any(low <= code <= high for low, high in listed)]
    text = ", ".join(f"{key}={value}" for key, value in given.items() if value) or "none"
    if not hit:
        return ok("RequeueExit", text)
    about = f"{text}: Slurm runs a job again that ends with {' or '.join(hit)}, the code of a final verdict"
    return warn("RequeueExit", about, "submit with --no-requeue")


def preemption(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if "PreemptMode" not in conf:
        return None
    modes = set(re.findall(r"[A-Z]+", plain(conf, "PreemptMode").upper()))
    if "SUSPEND" in modes:
        text = "jobs may be suspended: their workers may count as hung afterwards"
        return warn("PreemptMode", text, "use a partition or QOS that is not preempted in this way")
    return ok("PreemptMode", plain(conf, "PreemptMode") or "off")


def mpi(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if "MpiDefault" not in conf:
        return None
    default = plain(conf, "MpiDefault")
    if not default.startswith("pmi"):
        return ok("MpiDefault", default or "none")
    text = f"{default}: Slurm's PMI can end the step when a node dies, or a worker that uses MPI"
    return warn("MpiDefault", text, "launch overrules it; an srun line of your own needs --mpi=none")


def step_manager(conf: Conf, _config: JobConfig | None) -> Finding | None:
    if "enable_stepmgr" not in plain(conf, "SlurmctldParameters"):
        return None
    text = "enable_stepmgr: steps are managed on the batch host, and the effect of its death is not tested"
    return warn("stepmgr", text, "watch the first job that loses its first node")


def reserved_ports(conf: Conf, config: JobConfig | None) -> Finding | None:
    """Check that network.port is not in MpiParams=ports=20000-20999, nor in srun's own range."""
    given = {"MpiParams": plain(conf, "MpiParams"), "SrunPortRange": plain(conf, "SrunPortRange")}
    ranges = {key: (int(low), int(high)) for key, text in given.items() for low, high in _RANGE.findall(text)}
    port = config.network.port if config is not None else "auto"
    first, last = (ports.FIRST, ports.LAST) if port == "auto" else (port, port + ports.TRIES - 1)
    hit = [key for key, (low, high) in ranges.items() if high and low <= last and first <= high]
    text = ", ".join(f"{key}={given[key]}" for key in ranges if ranges[key][1]) or "none"
    if not hit or port == "auto":
        return ok("ports of Slurm's", f"{text}; the coordinator goes on to the next port where one is taken")
    return warn("ports of Slurm's", f"network.port {port} is among them: {text}", "name a port outside of these")


def topology(conf: Conf, config: JobConfig | None) -> Finding | None:
    if config is None or config.domain.source != "slurm_topology":
        return None
    plugin = plain(conf, "TopologyPlugin").removeprefix("topology/")
    if plugin in ("", "default", "flat"):
        text = "topology.domain asks Slurm, which has no topology here: all nodes are one domain"
        return warn("topology", text, "set topology.domain.source to node_name or file")
    return ok("topology", plugin)


_CODES = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")
_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")
CHECKS: tuple[Callable[[Conf, JobConfig | None], Finding | None], ...] = (
    *(kill_on_bad_exit, wait_time, slurmd_timeout, kill_wait, accounting, proctrack, memory, prolog, requeue),
    *(requeue_exit, preemption, mpi, step_manager, reserved_ports, topology),
)
