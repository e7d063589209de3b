"""The machines and daemons of one cluster: what starts them, stops them, asks them, and waits for them."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from . import chroot, mounts, settings
from . import machine as machines
from .errors import LabError
from .machine import Machine, Process
from .prefix import linked, missing_libraries
from .record import Record
from .releases import Release
from .settings import CONTROLLER, LOGIN, Layout, Parameters

NAMESPACES = ["unshare", "--net", "--uts", "--ipc", "--pid", "--mount", "--propagation", "private", "--fork"]
# States of nodes that answer; sinfo adds a star to those that do not. `mixed` and `allocated` say nothing about jobs:
# once slurmctld has taken a dead node out of a job, sinfo may call the node mixed until the job is over.
UP = {"idle", "allocated", "mixed", "completing"}
HELD = {"down", "drained", "draining"}
DAEMONS = ("slurmctld", "slurmdbd")
MARIADB = (
    *("mariadbd", "--no-defaults", "--user=mysql", "--skip-networking", "--innodb-buffer-pool-size=64M"),
    *("--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite", "--innodb-lock-wait-timeout=900"),
    "--loose-innodb-snapshot-isolation=OFF",  # slurmdbd asks for it; older servers do not know it
    *("--socket=/run/mysqld/mysqld.sock", "--pid-file=/run/mysqld/mysqld.pid"),
)
PATIENCE = 90.0
"""Bound of each wait in seconds, generous, for a machine that is busy with other things."""


class RunningCluster:
    """The machines and daemons of one cluster. Methods raise LabError when something does not happen in PATIENCE."""

    def __init__(self, release: Release, base: Path, layout: Layout, record: Record) -> None:
        self._release = release
        self._base = base
        self._layout = layout
        self._record = record

    def parameters(self) -> Parameters | None:
        """Return the parameters of the cluster; None when it is down."""
        return self._record.load()[0]

    def machines(self) -> dict[str, Machine]:
        """Return the living machines by name: ctl, login, n0, n1, ..."""
        return {machine.name: machine for machine in self._record.load()[1] if machine.alive()}

    def machine(self, name: str) -> Machine:
        """Return a living machine. Raises LabError when there is none of that name."""
        found = self.machines().get(name)
        if found is None:
            up = "the lab is down" if self.parameters() is None else f"the lab has no living machine {name!r}"
            raise LabError(f"{up} (Slurm {self._release})")
        return found

    def start_all(self, parameters: Parameters) -> None:
        """Write the configuration, and start the machines and all daemons in their order; wait until nodes are up."""
        settings.write(self._release, parameters, self._layout)
        self._record.save(parameters, [])
        ctl = self._start_machine(CONTROLLER)
        self._shell(
            ctl,
            "ip link set lo up && ip link add br0 address 02:00:00:00:00:01 type bridge && ip link set br0 up &&"
            f" ip addr add {settings.address(CONTROLLER)}/16 dev br0",
        )
        self._check_libraries()
        login = ["nsenter", "--target", str(ctl.pid), "--net", "--ipc", "--mount", "--"]
        self._start_machine(LOGIN, [*login, "unshare", "--uts", "--mount", "--propagation", "private"])
        database = (*MARIADB, f"--datadir={self._layout.cluster}/mysql", f"--init-file={self._layout.cluster}/init.sql")
        self._spawn(ctl, "mariadb", *database)
        self.wait("MariaDB", lambda: self._try("mariadb-admin", "ping").returncode == 0)
        self.start_daemon("slurmdbd")
        self.wait("slurmdbd", self._registered)
        self.start_daemon("slurmctld")
        for name in parameters.names():
            self.start_node(name)
        self.wait_up(parameters.names())

    def _registered(self) -> bool:
        """Whether slurmdbd has the cluster. On a busy machine it may refuse requests right after its start."""
        done = self._try("sacctmgr", "-i", "add", "cluster", "lab")
        return done.returncode == 0 or "already exists" in done.stdout

    def _check_libraries(self) -> None:
        """Check that the chroot has the libraries of a Slurm of a folder. Raises LabError that names missing ones."""
        prefix = self._release.prefix
        if prefix is not None:
            found = self._try("ldd", *linked(prefix))
            if missing := missing_libraries(found.stdout + found.stderr):
                suite = self._release.suite
                raise LabError(f"Slurm {self._release} needs what Debian {suite} does not have: {', '.join(missing)}")

    def _start_machine(self, name: str, command: list[str] | None = None) -> Machine:
        if command is None:
            command = NAMESPACES
            with chroot.locked(self._base / "mounts.lock"):  # clusters of one release share the chroot
                specification = mounts.specification(name, self._layout, self._release.prefix)
        else:
            specification = mounts.login_specification(self._layout)
        with (self._layout.log / f"{name}.log").open("ab") as log:
            machine = machines.start(name, command, specification, log, self._record.add)
        if name != LOGIN:  # it shares the controller's
            self._start_munge(machine)
        return machine

    def _start_munge(self, machine: Machine) -> None:
        """Start a munged for each machine: one for several would take the second use of a credential for a replay."""
        key = f"install -o munge -m 400 {self._layout.cluster}/munge.key /run/munge/munge.key"
        self._shell(machine, key)
        files = ("--key-file=/run/munge/munge.key", "--seed-file=/run/munge/seed", "--pid-file=/run/munge/munged.pid")
        as_munge = ("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "--")
        self._spawn(machine, f"munged.{machine.name}", *as_munge, "munged", "-F", *files)
        self.wait("munged", lambda: _succeeds(machine.enter("test", "-S", "/run/munge/munge.socket.2")))

    def start_node(self, name: str) -> None:
        """Start the node's machine, its network and its slurmd."""
        node = self._start_machine(name)
        index = int(name.removeprefix("n"))
        mac = f"02:00:00:00:01:{index:02x}"  # a restored node keeps it, or the others would ask for its old one
        self._shell(
            self.machine(LOGIN),  # on the controller's network too, and sees the host's process ids
            f"ip link del {name} 2>/dev/null; ip link add {name} type veth"
            f" peer name eth0 address {mac} netns /proc/{node.pid}/ns/net && ip link set {name} master br0 up",
        )
        address = settings.address(name)
        self._shell(node, f"ip link set lo up && ip addr add {address}/16 dev eth0 && ip link set eth0 up")
        self.start_slurmd(name)

    def start_slurmd(self, name: str) -> None:
        """Start the node's slurmd if it does not run."""
        if not self.slurmd(name):
            self._spawn(self.node(name), f"slurmd.{name}", "slurmd", "-D", "-N", name)

    def slurmd(self, name: str) -> list[Process]:
        """Return the node's slurmd, without a slurmstepd that still has its name for a moment."""
        found = self.node(name).processes()
        return [each for each in found if each.command.startswith("slurmd -D") and each.state != "Z"]

    def start_daemon(self, name: str) -> None:
        """Start slurmctld or slurmdbd, and wait until it answers."""
        if name not in DAEMONS:
            raise LabError(f"{name!r} is none of {', '.join(DAEMONS)}")
        ctl = self.machine(CONTROLLER)
        self._spawn(ctl, name, name, "-D", *(["-i"] if name == "slurmctld" else []))
        answers = ("scontrol", "ping") if name == "slurmctld" else ("sacctmgr", "-n", "list", "cluster")
        self.wait(f"{name} to answer", lambda: self._try(*answers).returncode == 0)

    def stop_daemon(self, name: str) -> None:
        """Send SIGTERM to slurmctld or slurmdbd, and wait until it is gone."""
        for pid in self.daemon_pids(name):
            subprocess.run(["kill", str(pid)], check=False, capture_output=True)
        self.wait(f"{name} to end", lambda: not self.daemon_pids(name))

    def daemon_pids(self, name: str) -> list[int]:
        """Return the process ids of slurmctld or slurmdbd; none when it does not run."""
        if name not in DAEMONS:
            raise LabError(f"{name!r} is none of {', '.join(DAEMONS)}")
        running = self.machine(CONTROLLER).processes()
        return [process.pid for process in running if process.name == name and process.state != "Z"]

    def _spawn(self, machine: Machine, log: str, *command: str) -> None:
        """Start a daemon. Its parent is the machine's first process, its output goes to the log."""
        with (self._layout.log / f"{log}.out").open("ab") as output:
            done = subprocess.run(
                machine.enter("setsid", "--fork", *command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
                timeout=PATIENCE,
            )
        if done.returncode:
            raise LabError(f"cannot start {log}; see {self._layout.log}/{log}.out")

    def _shell(self, machine: Machine, script: str) -> None:
        self._checked(machine.enter("sh", "-c", script))

    def controller(self, *command: str) -> None:
        """Run a command on the controller. Raises LabError unless it exits with 0."""
        self._checked(self.machine(CONTROLLER).enter(*command))

    def _checked(self, command: list[str]) -> None:
        done = _quiet(command, PATIENCE, self._environment())
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")

    def _try(self, *command: str) -> subprocess.CompletedProcess[str]:
        return _quiet(self.machine(CONTROLLER).enter(*command), PATIENCE, self._environment())

    def _environment(self) -> dict[str, str]:
        return machines.with_first(machines.daemon_environment(), self._release.environment)

    def node(self, name: str) -> Machine:
        """Return a living node."""
        self.check_name(name)
        return self.machine(name)

    def check_name(self, name: str) -> None:
        """Raise LabError unless the cluster has a node of this name."""
        names = self.current_parameters().names()
        if name not in names:
            raise LabError(f"{name!r} is no node of the lab; they are {', '.join(names)}")

    def states(self) -> dict[str, str]:
        """Return sinfo's state of each node that it lists."""
        lines = self._try("sinfo", "--noheader", "--Node", "--format=%N %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    def wait_up(self, names: list[str]) -> None:
        """Wait until Slurm calls these nodes up."""

        def up() -> bool:
            states = self.states()
            return all(states.get(name) in UP for name in names)

        self.wait(f"{' '.join(names)} to be up", up)

    def resumed(self, names: list[str]) -> bool:
        """Resume nodes that are down or drained. Return whether these nodes are up."""
        states = self.states()
        for name in names:
            if states.get(name) in HELD:
                self._try("scontrol", "update", f"nodename={name}", "state=resume")
        return all(states.get(name) in UP for name in names)

    def no_jobs(self) -> bool:
        """Whether squeue answers, and lists no job."""
        done = self._try("squeue", "--noheader")
        return done.returncode == 0 and not done.stdout.strip()

    def wait(self, what: str, done: Callable[[], bool]) -> None:
        """Wait until it is done. Raises LabError that names `what` when the time is over."""
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end:
                raise LabError(f"waited {PATIENCE:.0f} s for {what} in vain; logs: {self._layout.log}")
            time.sleep(0.1)

    def current_parameters(self) -> Parameters:
        """Return the parameters of the cluster. Raises LabError when it is down."""
        parameters = self.parameters()
        if parameters is None:
            raise LabError(f"the lab is down (Slurm {self._release}); `scripts/slurm-lab up` brings it up")
        return parameters


def _succeeds(command: list[str]) -> bool:
    return _quiet(command, 30, machines.daemon_environment()).returncode == 0


def _quiet(command: list[str], timeout: float, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=env,
    )
