"""One cluster as its users see it: up and down, and the loss and return of its nodes, network and daemons."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from . import chroot, network, settings
from . import machine as machines
from .errors import LabError
from .machine import Machine
from .network import Direction
from .prefix import find
from .record import Record
from .releases import DEFAULT_RELEASE, cluster_number, lab_dir
from .running import DAEMONS, UP, RunningCluster
from .settings import CONTROLLER, LOGIN, Layout, Parameters


class Cluster:
    """One cluster of a Slurm release in the lab's folder. Methods raise LabError when something does not happen.

    Waits are bounded by PATIENCE seconds.
    """

    def __init__(self, slurm: str | Path = DEFAULT_RELEASE) -> None:
        """Use one of RELEASES, or the Slurm that is installed below a folder. Raises LabError when there is none."""
        self.release = find(slurm)
        self.base = lab_dir() / self.release.name
        number = cluster_number()
        name = f"cluster-{number}" if number else "cluster"
        self.layout = Layout(self.base / f"root-{self.release.recipe}", self.base / name, number)
        self._record = Record(self.base / f"{name}.json")
        self._lock = self.base / f"{name}.lock"
        self._running = RunningCluster(self.release, self.base, self.layout, self._record)

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
                self._running.start_all(parameters)
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
        return self._running.parameters()

    def machines(self) -> dict[str, Machine]:
        """Return the living machines by name: ctl, login, n0, n1, ..."""
        return self._running.machines()

    def machine(self, name: str) -> Machine:
        """Return a living machine. Raises LabError when there is none of that name."""
        return self._running.machine(name)

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
        states = self._running.states() if CONTROLLER in living else {}
        for name in (CONTROLLER, LOGIN, *parameters.names()):
            lines.append(f"{name}: {'alive' if name in living else 'dead'} {states.get(name, '')}".rstrip())
        return "\n".join(lines)

    # Nodes and daemons

    def kill_node(self, name: str) -> None:
        """Kill the node as a power failure does: its network is silent, then all of its processes are gone at once."""
        with self._locked():
            node = self._running.node(name)
            self._link(name, "down")
            node.kill()

    def restore_node(self, name: str) -> None:
        """Start a dead node again and wait until Slurm has it back. A living one is left alone."""
        with self._locked():
            self._running.check_name(name)
            if name not in self.machines():
                self._running.start_node(name)
            self._running.wait_up([name])

    def cut_node(self, name: str, only: Direction | None = None) -> None:
        """Take the node off the network; everything on it goes on. With `only` one direction works on: packets from it
        ("out"), or packets to it ("in"), get lost."""
        with self._locked():
            self._running.node(name)
            if only is None:
                self._link(name, "down")
            else:
                network.cut(self.machines(), name, only)

    def heal_node(self, name: str) -> None:
        """End a cut of either kind."""
        with self._locked():
            self._running.node(name)
            self._heal([name])

    def freeze_node(self, name: str) -> None:
        """Send SIGSTOP to everything on the node, Slurm's daemons included; its network card still answers for it."""
        with self._locked():
            self._running.node(name).freeze()

    def thaw_node(self, name: str) -> None:
        """Send SIGCONT to everything on the node."""
        with self._locked():
            self._running.node(name).thaw()

    def renew(self, parameters: Parameters) -> None:
        """Provide a healthy cluster with these parameters and without jobs: restore it, or make a new one."""
        if self.parameters() == parameters:
            try:
                self.restore_all()
                return
            except LabError as error:
                print(f"Slurm {self.release}: the cluster is made anew, as it was not restored: {error}", flush=True)
        self.down()
        try:
            self.up(parameters)
        except LabError as error:  # slurmdbd has once not answered for 90 s after the first start of several clusters
            print(f"Slurm {self.release}: the cluster is started again, as it did not come up: {error}", flush=True)
            self._keep_logs()
            self.up(parameters)

    def _keep_logs(self) -> None:
        """Copy the logs of a start that failed to the release's folder, as the next start removes them."""
        if self.layout.log.is_dir():
            shutil.copytree(self.layout.log, self.base / "logs-of-failed-start", dirs_exist_ok=True)

    def restore_all(self) -> None:
        """Cancel every job, start dead daemons and nodes, heal cuts, thaw and resume nodes; wait until all are up."""
        with self._locked():
            parameters = self._running.current_parameters()
            for daemon in ("slurmdbd", "slurmctld"):
                if not self._running.daemon_pids(daemon):
                    self._running.start_daemon(daemon)
            living = self.machines()
            self._heal([name for name in parameters.names() if name in living])
            for name in parameters.names():
                if name not in living:
                    self._running.start_node(name)
                self._running.start_slurmd(name)
            self._running.controller("scancel", "--state=PENDING")
            self._running.controller("scancel", "--state=RUNNING")
            self._running.wait("the jobs to end", self._running.no_jobs)
            self._running.wait("all nodes to be up", lambda: self._running.resumed(parameters.names()))

    def stop_daemon(self, name: str) -> None:
        """Send SIGTERM to slurmctld or slurmdbd, and wait until it is gone."""
        with self._locked():
            self._running.stop_daemon(name)

    def start_daemon(self, name: str) -> None:
        """Start slurmctld or slurmdbd if it does not run, and wait until it answers."""
        with self._locked():
            if not self._running.daemon_pids(name):
                self._running.start_daemon(name)

    def slurmd_timeout(self, seconds: int) -> None:
        """Change SlurmdTimeout of the running cluster by a restart of slurmctld; jobs go on."""
        with self._locked():
            parameters = replace(self._running.current_parameters(), slurmd_timeout=seconds)
            settings.write_slurm_conf(self.release, parameters, self.layout)
            self._record.save(parameters, list(self.machines().values()))
            self._running.stop_daemon("slurmctld")
            self._running.start_daemon("slurmctld")
            self._running.wait_up([name for name in parameters.names() if name in self.machines()])

    # Helpers

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
        if not all(self._running.daemon_pids(daemon) for daemon in DAEMONS):
            return False
        self._heal(parameters.names())
        states = self._running.states()
        return all(states.get(name) in UP for name in parameters.names())

    def _link(self, name: str, state: str) -> None:
        self._running.controller("ip", "link", "set", name, state)

    def _heal(self, names: list[str]) -> None:
        """End cuts and freezes of these living nodes."""
        living = self.machines()
        if names:
            self._running.controller("sh", "-c", " && ".join(f"ip link set {name} up" for name in names))
            network.heal(living, names)
        for name in names:
            living[name].thaw()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with chroot.locked(self._lock):
            yield
