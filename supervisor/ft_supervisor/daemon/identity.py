"""Who this node is and what its job is: configuration and Slurm's environment, boiled down to a Job and a Node.

Looks at nothing but its arguments, the resolver, the network interfaces and, if asked to, NVML (design: identity).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ft_slurm import ports
from ft_slurm.environment import StepEnvironment
from ft_supervisor.config.merge import beyond_nodes
from ft_supervisor.config.model import JobConfig
from ft_supervisor.core.protocol.model import Job, Node
from ft_supervisor.core.protocol.settings import Settings
from ft_supervisor.daemon import domain, network

LOCAL = "FT_SUPERVISOR_LOCAL"
"""Set to 1 by `ft-supervisor local`: no Slurm passes signals on to workers."""
NONCE = "FT_SUPERVISOR_NONCE"
"""What `launch` and `local` want to see in the verdict's file: for the daemon alone (shell.run)."""


class IdentityError(Exception):
    """The configuration does not fit the step or the node; one line, exit code 2."""


def build(config: JobConfig, step: StepEnvironment, environ: Mapping[str, str]) -> tuple[Job, Node, tuple[str, ...]]:
    """The job, this node, and warnings, a line each.

    Raises IdentityError, and ft_slurm's NoDomain. Takes at most `network.RESOLVE_BOUND` seconds, and what
    `domain.find` may take.
    """
    least = config.settings.placement.least or config.active
    if least > len(step.nodes):
        where = config.sources.get("nodes.active", "nodes.active")
        raise IdentityError(
            f"{where}: nodes.active: {least} active nodes are more than the step's {len(step.nodes)} nodes; "
            f"ask Slurm for {config.active} and the spares"
        )
    if beyond := beyond_nodes(config.candidates, len(step.nodes)):
        where = config.sources.get("coordinator.candidates", "coordinator.candidates")
        raise IdentityError(f"{where}: coordinator.candidates: {'; '.join(beyond)}")
    addr, listen, warnings = _own_addr(config, step)
    domain_id, why_none = domain.find(config.domain, step, environ)
    run_dir = config.run_dir.replace("{job_id}", str(step.job_id))
    job = Job(
        run_id=step.run_id,
        nodes=step.nodes,
        hosts=tuple(step.addresses.get(name) or name + config.network.suffix for name in step.nodes),
        ports=ports.candidates(step, None if config.network.port == "auto" else config.network.port),
        run_folder=str(step.submit_dir / run_dir / step.run_id),
        local_folder=str(local_folder(step.run_id) / step.node_name),
        active=config.active,
        per_node=_per_node(config, environ),
        command=config.command,
        env=config.env,
        timeouts=config.timeouts,
        candidates=config.candidates,
        listen=listen,
        signal_workers=environ.get(LOCAL) == "1",
        nonce=environ.get(NONCE, ""),
        settings=_settings(config, step),
        policy=config.policy,
        preload=config.preload,
    )
    node = Node(step.infra_rank, step.node_name, addr, domain_id, _known_gpus(environ))
    return job, node, warnings + why_none


def _settings(config: JobConfig, step: StepEnvironment) -> Settings:
    """With the step file's place made absolute."""
    if not (template := config.settings.step_file):
        return config.settings
    return replace(config.settings, step_file=str(step.submit_dir / template.replace("{job_id}", str(step.job_id))))


def local_folder(run_id: str) -> Path:
    """What nodes keep of a run on their own disk; each in a folder of its name."""
    return Path(f"/tmp/ft-{os.getuid()}") / run_id


def _own_addr(config: JobConfig, step: StepEnvironment) -> tuple[str, str, tuple[str, ...]]:
    """What peers connect to, what the store listens on ("": everything), and warnings.

    Peers know the alias, else they try the name first (Job.hosts).
    """
    if alias := step.addresses.get(step.node_name):
        return alias, network.numeric(alias) or network.only(network.addresses(alias)), ()
    interface, name = config.network.interface, step.node_name + config.network.suffix
    if interface != "auto":
        address = network.interface_address(interface)
        if address is None:
            there = ", ".join(f"{name} {addr}" for name, addr in network.interfaces().items())
            where = config.sources.get("network.interface", "network.interface")
            raise IdentityError(
                f"{where}: network.interface: {interface!r} has no IPv4 address here; these have: {there}"
            )
        return address, address if network.only(network.addresses(name)) == address else "", ()
    if found := network.addresses(name):
        return name, network.only(found), ()
    address = network.primary_address()
    return address, "", (f"{name} does not resolve on this node; peers get its address {address} instead",)


def _per_node(config: JobConfig, environ: Mapping[str, str]) -> int:
    where = config.sources.get("workers.per_node", "workers.per_node")
    if config.per_node == "cpu":
        count = _number(environ, "SLURM_CPUS_ON_NODE")
        if not count:
            raise IdentityError(f"{where}: workers.per_node: cpu, but SLURM_CPUS_ON_NODE is not set; give a number")
        return count
    if config.per_node == "gpu":
        count = _gpus(environ)
        if not count:
            raise IdentityError(
                f"{where}: workers.per_node: gpu, but the step has no GPU on this node (CUDA_VISIBLE_DEVICES, "
                "SLURM_GPUS_ON_NODE, SLURM_STEP_GPUS); ask srun for some, or give a number"
            )
        return count
    return config.per_node


def _known_gpus(environ: Mapping[str, str]) -> int | None:
    """Return the same, None also for what is no number: it is for people alone."""
    try:
        return _gpus(environ)
    except IdentityError:
        return None


def _gpus(environ: Mapping[str, str]) -> int | None:
    """Return how many GPUs the step has on this node; None if nothing says so."""
    if (visible := environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return _devices(visible)
    if (count := _number(environ, "SLURM_GPUS_ON_NODE")) is not None:
        return count
    return _devices(environ["SLURM_STEP_GPUS"]) if "SLURM_STEP_GPUS" in environ else None


def _devices(value: str) -> int:
    """How many devices `0,1` or `GPU-8c1d,GPU-77e2` names; CUDA ends the list at the first -1 or NoDevFiles."""
    count = 0
    for item in value.split(","):
        if not item.strip() or item.strip() in ("-1", "NoDevFiles"):
            break
        count += 1
    return count


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    if value and not re.fullmatch(r"[0-9]{1,6}", value):
        raise IdentityError(f"{name}={value!r}: expected a number")
    return int(value) if value else None
