"""One cluster: bringing it up and down, its machines, its network and its daemons."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from . import chroot, mounts, network, settings
from . import machine as machines
from .errors import LabError
from .machine import Machine, Process
from .network import Direction
from .prefix import find, linked, missing_libraries
from .record import Record
from .releases import DEFAULT_RELEASE, cluster_number, lab_dir
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


class Cluster:
    """One cluster of a Slurm release in the lab's folder. Methods raise LabError when something does not happen.

    Waits are bounded by `patience` seconds, generously, for a machine that is busy with other things.
    """

    patience = 90.0

    def __init__(self, slurm: str | Path = DEFAULT_RELEASE) -> None:
        """Use one of RELEASES, or the Slurm that is installed below a folder. Raises LabError when there is none."""
        self.release = find(slurm)
        self.base = lab_dir() / self.release.name
        number = cluster_number()
        name = f"cluster-{number}" if number else "cluster"
        self.layout = Layout(self.base / f"root-{self.release.recipe}", self.base / name, number)
        self._record = Record(self.base / f"{name}.json")
        self._lock = self.base / f"{name}.lock"

    # Up and down

    def build(self) -> Path:
        """Return the chroot's folder, built if it is missing. Raises ArchiveMoved and LabError."""
        return chroot.ensure(self.release, self.base)

    def up(self, parameters: Parameters) -> bool:
        """Bring the cluster up. Return whether it had to: a healthy one with these parameters stays as it is."""
        parameters.check(self.release)
        self.build()
        with self._locked():
            if self._healthy(parameters):
                return False
            self._down()
            try:
                self._up(parameters)
            except BaseException:
                self._down()
                raise
        return True

    def down(self) -> None:
        """End every process of the cluster, and with them its namespaces. Chroot and logs stay."""
        with self._locked():
            self._down()

    def parameters(self) -> Parameters | None:
        """Return the parameters of the cluster; None when it is down."""
        return self._record.load()[0]

    def machines(self) -> dict[str, Machine]:
        """Return the living machines by name: ctl, login, n0, n1, ..."""
        return {machine.name: machine for machine in self._record.load()[1] if machine.alive()}

    def machine(self, name: str) -> Machine:
        found = self.machines().get(name)
        if found is None:
            up = "the lab is down" if self.parameters() is None else f"the lab has no living machine {name!r}"
            raise LabError(f"{up} (Slurm {self.release})")
        return found

    def leftovers(self) -> list[str]:
        """Return in words the processes and mounts of this cluster that are still there after `down`."""
        found = [f"machine {name}" for name in self.machines()]
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and machines.start_time(int(folder.name)) is not None:
                try:
                    command = (folder / "cmdline").read_bytes()
                    # A holder that has not mounted anything yet is known by its label.
                    if self._is_inside(folder) or (b"init.py" in command and bytes(self.layout.log) + b"/" in command):
                        found.append(f"process {folder.name}: {command.decode(errors='replace')}")
                except OSError:
                    continue  # it has ended
        mounted = Path("/proc/self/mountinfo").read_text().splitlines()
        return found + [f"mount {line}" for line in mounted if f" {self.base}/" in line]

    def _is_inside(self, process: Path) -> bool:
        """Whether the process of this folder in /proc is in the chroot, with this cluster's folder mounted there."""
        if not (process / "root").readlink().is_relative_to(self.layout.root):
            return False
        return f" {self.layout.cluster} " in (process / "mountinfo").read_text()

    def status(self) -> str:
        """Return the state of the cluster, in words."""
        parameters = self.parameters()
        if parameters is None:
            return f"Slurm {self.release}: down"
        living = self.machines()
        lines = [f"Slurm {self.release}: {parameters}", f"logs: {self.layout.log}"]
        states = self._states() if CONTROLLER in living else {}
        for name in (CONTROLLER, LOGIN, *parameters.names()):
            lines.append(f"{name}: {'alive' if name in living else 'dead'} {states.get(name, '')}".rstrip())
        return "\n".join(lines)

    # Nodes and daemons

    def kill_node(self, name: str) -> None:
        """Kill the node as a power failure does: its network is silent, then all of its processes are gone at once."""
        with self._locked():
            node = self._node(name)
            self._link(name, "down")
            node.kill()

    def restore_node(self, name: str) -> None:
        """Start a dead node again and wait until Slurm has it back. A living one is left alone."""
        with self._locked():
            self._check_name(name)
            if name not in self.machines():
                self._start_node(name)
            self._wait_up([name])

    def cut_node(self, name: str, only: Direction | None = None) -> None:
        """Take the node off the network; everything on it goes on. With `only` one direction works on: packets from it
        ("out"), or packets to it ("in"), get lost."""
        with self._locked():
            self._node(name)
            if only is None:
                self._link(name, "down")
            else:
                network.cut(self.machines(), name, only)

    def heal_node(self, name: str) -> None:
        """End a cut of either kind."""
        with self._locked():
            self._node(name)
            self._heal([name])

    def freeze_node(self, name: str) -> None:
        """Send SIGSTOP to everything on the node, Slurm's daemons included; its network card still answers for it."""
        with self._locked():
            self._node(name).freeze()

    def thaw_node(self, name: str) -> None:
        """Send SIGCONT to everything on the node."""
        with self._locked():
            self._node(name).thaw()

    def renew(self, parameters: Parameters) -> None:
        """Provide a healthy cluster with these parameters and without jobs: restore it, or make a new one."""
        if self.parameters() == parameters:
            try:
                self.restore_all()
                return
            except LabError as error:
                print(f"Slurm {self.release}: the cluster is made anew, as it was not restored: {error}", flush=True)
        self.down()
        self.up(parameters)

    def restore_all(self) -> None:
        """Cancel every job, start dead daemons and nodes, heal cuts, thaw and resume nodes; wait until all are up."""
        with self._locked():
            parameters = self._parameters()
            for daemon in ("slurmdbd", "slurmctld"):
                if not self._daemon_pids(daemon):
                    self._start_daemon(daemon)
            living = self.machines()
            self._heal([name for name in parameters.names() if name in living])
            for name in parameters.names():
                if name not in living:
                    self._start_node(name)
                self._start_slurmd(name)
            self._controller("scancel", "--state=PENDING")
            self._controller("scancel", "--state=RUNNING")
            self._wait("the jobs to end", self._no_jobs)
            self._wait("all nodes to be up", lambda: self._resumed(parameters.names()))

    def stop_daemon(self, name: str) -> None:
        """Send SIGTERM to slurmctld or slurmdbd, and wait until it is gone."""
        with self._locked():
            self._stop_daemon(name)

    def start_daemon(self, name: str) -> None:
        """Start slurmctld or slurmdbd if it does not run, and wait until it answers."""
        with self._locked():
            if not self._daemon_pids(name):
                self._start_daemon(name)

    def slurmd_timeout(self, seconds: int) -> None:
        """Change SlurmdTimeout of the running cluster by a restart of slurmctld; jobs go on."""
        with self._locked():
            parameters = replace(self._parameters(), slurmd_timeout=seconds)
            settings.write_slurm_conf(self.release, parameters, self.layout)
            self._record.save(parameters, list(self.machines().values()))
            self._stop_daemon("slurmctld")
            self._start_daemon("slurmctld")
            self._wait_up([name for name in parameters.names() if name in self.machines()])

    # Helpers

    def _up(self, parameters: Parameters) -> None:
        settings.write(self.release, parameters, self.layout)
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
        database = (*MARIADB, f"--datadir={self.layout.cluster}/mysql", f"--init-file={self.layout.cluster}/init.sql")
        self._spawn(ctl, "mariadb", *database)
        self._wait("MariaDB", lambda: self._try("mariadb-admin", "ping").returncode == 0)
        self._start_daemon("slurmdbd")
        self._wait("slurmdbd", self._registered)
        self._start_daemon("slurmctld")
        for name in parameters.names():
            self._start_node(name)
        self._wait_up(parameters.names())

    def _registered(self) -> bool:
        """Whether slurmdbd has the cluster. On a busy machine it may refuse requests right after its start."""
        done = self._try("sacctmgr", "-i", "add", "cluster", "lab")
        return done.returncode == 0 or "already exists" in done.stdout

    def _check_libraries(self) -> None:
        """Check that the chroot has the libraries of a Slurm of a folder. Raises LabError that names missing ones."""
        prefix = self.release.prefix
        if prefix is not None:
            found = self._try("ldd", *linked(prefix))
            if missing := missing_libraries(found.stdout + found.stderr):
                suite = self.release.suite
                raise LabError(f"Slurm {self.release} needs what Debian {suite} does not have: {', '.join(missing)}")

    def _down(self) -> None:
        alive = self.machines()
        for name in sorted(alive, key=(CONTROLLER, LOGIN).__contains__):  # the nodes, then the others
            if name != CONTROLLER:
                alive[name].kill()
        if CONTROLLER in alive:
            alive[CONTROLLER].kill()
        self._record.clear()

    def _healthy(self, parameters: Parameters) -> bool:
        if self.parameters() != parameters or not {*parameters.names(), CONTROLLER, LOGIN} <= set(self.machines()):
            return False
        if not all(self._daemon_pids(daemon) for daemon in DAEMONS):
            return False
        self._heal(parameters.names())
        states = self._states()
        return all(states.get(name) in UP for name in parameters.names())

    def _start_machine(self, name: str, command: list[str] | None = None) -> Machine:
        if command is None:
            command = NAMESPACES
            with chroot.locked(self.base / "mounts.lock"):  # clusters of one release share the chroot
                specification = mounts.specification(name, self.layout, self.release.prefix)
        else:
            specification = mounts.login_specification(self.layout)
        with (self.layout.log / f"{name}.log").open("ab") as log:
            machine = machines.start(name, command, specification, log, self._record.add)
        if name != LOGIN:  # it shares the controller's
            self._start_munge(machine)
        return machine

    def _start_munge(self, machine: Machine) -> None:
        """Start a munged for each machine: one for several would take the second use of a credential for a replay."""
        key = f"install -o munge -m 400 {self.layout.cluster}/munge.key /run/munge/munge.key"
        self._shell(machine, key)
        files = ("--key-file=/run/munge/munge.key", "--seed-file=/run/munge/seed", "--pid-file=/run/munge/munged.pid")
        as_munge = ("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "--")
        self._spawn(machine, f"munged.{machine.name}", *as_munge, "munged", "-F", *files)
        self._wait("munged", lambda: _succeeds(machine.enter("test", "-S", "/run/munge/munge.socket.2")))

    def _start_node(self, name: str) -> None:
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
        self._start_slurmd(name)

    def _start_slurmd(self, name: str) -> None:
        if not self._slurmd(name):
            self._spawn(self._node(name), f"slurmd.{name}", "slurmd", "-D", "-N", name)

    def _slurmd(self, name: str) -> list[Process]:
        """Return the node's slurmd, without a slurmstepd that still has its name for a moment."""
        found = self._node(name).processes()
        return [each for each in found if each.command.startswith("slurmd -D") and each.state != "Z"]

    def _start_daemon(self, name: str) -> None:
        if name not in DAEMONS:
            raise LabError(f"{name!r} is none of {', '.join(DAEMONS)}")
        ctl = self.machine(CONTROLLER)
        self._spawn(ctl, name, name, "-D", *(["-i"] if name == "slurmctld" else []))
        answers = ("scontrol", "ping") if name == "slurmctld" else ("sacctmgr", "-n", "list", "cluster")
        self._wait(f"{name} to answer", lambda: self._try(*answers).returncode == 0)

    def _stop_daemon(self, name: str) -> None:
        for pid in self._daemon_pids(name):
            subprocess.run(["kill", str(pid)], check=False, capture_output=True)
        self._wait(f"{name} to end", lambda: not self._daemon_pids(name))

    def _daemon_pids(self, name: str) -> list[int]:
        if name not in DAEMONS:
            raise LabError(f"{name!r} is none of {', '.join(DAEMONS)}")
        running = self.machine(CONTROLLER).processes()
        return [process.pid for process in running if process.name == name and process.state != "Z"]

    def _spawn(self, machine: Machine, log: str, *command: str) -> None:
        """Start a daemon. Its parent is the machine's first process, its output goes to the log."""
        with (self.layout.log / f"{log}.out").open("ab") as output:
            done = subprocess.run(
                machine.enter("setsid", "--fork", *command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(),
                timeout=self.patience,
            )
        if done.returncode:
            raise LabError(f"cannot start {log}; see {self.layout.log}/{log}.out")

    def _shell(self, machine: Machine, script: str) -> None:
        self._checked(machine.enter("sh", "-c", script))

    def _controller(self, *command: str) -> None:
        self._checked(self.machine(CONTROLLER).enter(*command))

    def _checked(self, command: list[str]) -> None:
        done = _quiet(command, self.patience, self._environment())
        if done.returncode:
            raise LabError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")

    def _try(self, *command: str) -> subprocess.CompletedProcess[str]:
        return _quiet(self.machine(CONTROLLER).enter(*command), self.patience, self._environment())

    def _environment(self) -> dict[str, str]:
        return machines.with_first(machines.daemon_environment(), self.release.environment)

    def _link(self, name: str, state: str) -> None:
        self._controller("ip", "link", "set", name, state)

    def _heal(self, names: list[str]) -> None:
        """End cuts and freezes of these living nodes."""
        living = self.machines()
        if names:
            self._controller("sh", "-c", " && ".join(f"ip link set {name} up" for name in names))
            network.heal(living, names)
        for name in names:
            living[name].thaw()

    def _node(self, name: str) -> Machine:
        self._check_name(name)
        return self.machine(name)

    def _check_name(self, name: str) -> None:
        names = self._parameters().names()
        if name not in names:
            raise LabError(f"{name!r} is no node of the lab; they are {', '.join(names)}")

    def _states(self) -> dict[str, str]:
        lines = self._try("sinfo", "--noheader", "--Node", "--format=%N %T").stdout.splitlines()
        return dict(line.split() for line in lines)

    def _wait_up(self, names: list[str]) -> None:
        def up() -> bool:
            states = self._states()
            return all(states.get(name) in UP for name in names)

        self._wait(f"{' '.join(names)} to be up", up)

    def _resumed(self, names: list[str]) -> bool:
        """Resume nodes that are down or drained. Return whether these nodes are up."""
        states = self._states()
        for name in names:
            if states.get(name) in HELD:
                self._try("scontrol", "update", f"nodename={name}", "state=resume")
        return all(states.get(name) in UP for name in names)

    def _no_jobs(self) -> bool:
        done = self._try("squeue", "--noheader")
        return done.returncode == 0 and not done.stdout.strip()

    def _wait(self, what: str, done: Callable[[], bool], timeout: float | None = None) -> None:
        bound = self.patience if timeout is None else timeout
        end = time.monotonic() + bound
        while not done():
            if time.monotonic() > end:
                raise LabError(f"waited {bound:.0f} s for {what} in vain; logs: {self.layout.log}")
            time.sleep(0.1)

    def _parameters(self) -> Parameters:
        parameters = self.parameters()
        if parameters is None:
            raise LabError(f"the lab is down (Slurm {self.release}); `scripts/slurm-lab up` brings it up")
        return parameters

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with chroot.locked(self._lock):
            yield


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
