"""Writes the configuration, keys and folders of one cluster's Slurm, munge and MariaDB."""

import os
import secrets
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError
from .releases import CLUSTERS, RELEASES, Release

CONTROLLER = "ctl"
LOGIN = "login"  # on the controller's network, so at its address
TOPOLOGIES = ("none", "tree", "block")


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The options of `up`."""

    nodes: int = 4
    slurmd_timeout: int = 10
    topology: str = "none"
    conf_lines: tuple[str, ...] = ()

    def names(self) -> list[str]:
        return [f"n{index}" for index in range(self.nodes)]

    def check(self, release: Release) -> None:
        """Raise LabError where this release does not support them."""
        if not 1 <= self.nodes <= 64:
            raise LabError(f"--nodes {self.nodes}: from 1 to 64")
        if self.slurmd_timeout < 1:
            raise LabError(f"--slurmd-timeout {self.slurmd_timeout}: at least 1 second")
        if self.topology != "none" and (self.nodes < 2 or self.nodes % 2):
            raise LabError(f"--topology {self.topology} needs an even number of nodes, not {self.nodes}")
        if self.topology == "block" and not release.has_block_topology:
            raise LabError(f"Slurm {release} has no topology/block")


@dataclass(frozen=True)
class Layout:
    """The folders of one cluster. All but the chroot are seen at the same paths inside."""

    root: Path
    cluster: Path
    number: int

    @property
    def log(self) -> Path:
        return self.cluster / "log"

    @property
    def slurm(self) -> Path:
        return self.cluster / "slurm"

    def uid(self, user: str) -> int:
        """Return the user's number in the chroot. Raises LabError for a user that it does not have."""
        for line in (self.root / "etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == user:
                return int(fields[2])
        raise LabError(f"the lab has no user {user!r}")


def address(name: str) -> str:
    """Return the machine's address in the cluster's own network, which exists in its namespaces only."""
    if name in (CONTROLLER, LOGIN):
        return "10.213.0.1"
    return f"10.213.1.{1 + int(name.removeprefix('n'))}"


def write(release: Release, parameters: Parameters, layout: Layout) -> None:
    """Make the cluster's folder afresh. Raises LabError for parameters that this release does not support."""
    parameters.check(release)
    if layout.cluster.exists():
        shutil.rmtree(layout.cluster)
    slurm_uid = layout.uid("slurm")
    for folder, uid in (
        (layout.slurm, 0),
        (layout.log, slurm_uid),
        (layout.cluster / "state", slurm_uid),
        (layout.cluster / "spool", 0),
        (layout.cluster / "work", 0),
    ):
        folder.mkdir(parents=True)
        os.chown(folder, uid, uid)
    layout.cluster.chmod(0o755)
    _network_files(parameters, layout)
    _munge_key(layout)
    _database(layout)
    _slurmdbd_conf(layout, slurm_uid)
    write_slurm_conf(release, parameters, layout)
    _topology_conf(parameters, layout)
    if release.cgroup_conf:
        (layout.slurm / "cgroup.conf").write_text(release.cgroup_conf)


def write_slurm_conf(release: Release, parameters: Parameters, layout: Layout) -> None:
    """Write slurm.conf; see `_first_job_id` for the ids of its jobs."""
    topology = "" if parameters.topology == "none" else f"TopologyPlugin=topology/{parameters.topology}\n"
    (layout.slurm / "slurm.conf").write_text(f"""\
ClusterName=lab
SlurmctldHost={CONTROLLER}
SlurmUser=slurm
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
MpiParams=ports=20000-20999
SlurmdParameters=config_overrides
SlurmdTimeout={parameters.slurmd_timeout}
KillWait=5
ReturnToService=2
FirstJobId={_first_job_id(release, layout)}
DebugFlags=NO_CONF_HASH
StateSaveLocation={layout.cluster}/state
SlurmdSpoolDir={layout.cluster}/spool/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile={layout.log}/slurmctld.log
SlurmdLogFile={layout.log}/slurmd.%n.log
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={CONTROLLER}
AccountingStoreFlags={release.accounting_flags}
{topology}NodeName={_hostlist(parameters.names())} CPUs=8 RealMemory=4000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{"".join(f"{line}{chr(10)}" for line in parameters.conf_lines)}""")


def _first_job_id(release: Release, layout: Layout) -> int:
    """Return the first id, made from the clock, in each cluster's own range (MaxJobId is 67,043,328): clusters share
    /tmp, where a job's id is a folder's name, and several of them may be up at once."""
    kept = layout.cluster / "first_job_id"
    if not kept.exists():
        ranges = [*sorted(RELEASES), "prefix"]
        each = 60_000_000 // (len(ranges) * CLUSTERS)
        own = "prefix" if release.prefix is not None else release.name
        first = each * (ranges.index(own) * CLUSTERS + layout.number)
        kept.write_text(str(1 + first + int(time.time()) % (each - 100_000)))
    return int(kept.read_text())


def _hostlist(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"n[{names[0][1:]}-{names[-1][1:]}]"


def _topology_conf(parameters: Parameters, layout: Layout) -> None:
    names = parameters.names()
    half = len(names) // 2
    text = ""
    if parameters.topology == "tree":
        text = f"SwitchName=s0 Nodes={_hostlist(names[:half])}\nSwitchName=s1 Nodes={_hostlist(names[half:])}\n"
        text += "SwitchName=spine Switches=s[0-1]\n"
    elif parameters.topology == "block":
        blocks = (f"BlockName=b{index} Nodes={_hostlist(names[2 * index : 2 * index + 2])}\n" for index in range(half))
        text = "".join(blocks) + "BlockSizes=2\n"
    if text:
        (layout.slurm / "topology.conf").write_text(text)


def _network_files(parameters: Parameters, layout: Layout) -> None:
    machines = "".join(f"{address(name)} {name}\n" for name in (CONTROLLER, LOGIN, *parameters.names()))
    (layout.cluster / "hosts").write_text(f"127.0.0.1 localhost\n{machines}")
    # No name server at all: none can be reached, and a look-up that waits for one stops torch's store.
    (layout.cluster / "resolv.conf").write_text("")
    (layout.cluster / "nsswitch.conf").write_text("passwd: files\ngroup: files\nshadow: files\nhosts: files\n")


def _munge_key(layout: Layout) -> None:
    key = layout.cluster / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(secrets.token_bytes(128))
    os.chown(key, layout.uid("munge"), -1)


def _database(layout: Layout) -> None:
    """Copy the empty database that MariaDB's package made when it was installed."""
    subprocess.run(["cp", "-a", "--sparse=always", layout.root / "var/lib/mysql", layout.cluster / "mysql"], check=True)
    (layout.cluster / "init.sql").write_text(
        "CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED VIA unix_socket;\n"
        "GRANT ALL ON slurm_acct_db.* TO slurm@localhost;\n"
    )


def _slurmdbd_conf(layout: Layout, slurm_uid: int) -> None:
    conf = layout.slurm / "slurmdbd.conf"
    conf.touch(mode=0o600)  # slurmdbd refuses any other mode
    conf.write_text(f"""\
DbdHost={CONTROLLER}
SlurmUser=slurm
AuthType=auth/munge
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogFile={layout.log}/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
""")
    os.chown(conf, slurm_uid, slurm_uid)
