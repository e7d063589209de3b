"""The simulated process of `launch` on the batch host: the real machine, its shell, and Slurm's answers to it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.coordinator import FILE_TIME
from tests.simulation.launch_checks import LaunchChecks
from tests.simulation.process import Process
from tests.simulation.srun import SimSrun
from tests.simulation.words import brief

from ft_supervisor.core.launch import interface
from ft_supervisor.core.protocol.actions import Leave
from ft_supervisor.core.protocol.events import Signalled, Tick
from ft_supervisor.core.protocol.model import Outcome, Verdict, last_grace

if TYPE_CHECKING:
    from tests.simulation.world import World

HOST = 0
"""The node that runs the batch script."""
PERIOD = 0.2
"""Seconds between two looks for the verdict's file."""
MARGIN = 5.0
ANSWER_TIME = (0.02, 3.0)
"""Seconds until Slurm answers."""
COMPLETE_TIME = (0.1, 60.0)
"""Seconds until Slurm has ended the job."""


class SimLaunch(Process):
    """The process of `launch`. It has a random stream of its own, so that the other processes draw the same numbers as
    in a job without `launch`."""

    def __init__(self, world: World) -> None:
        super().__init__(world, 1.0)
        self.world = world
        dice = self._dice = random.Random(f"launch {world.plan.seed}")
        job = world.job
        begin = interface.LaunchBegin(
            1,
            len(job.nodes),
            job.active,
            job.nodes[HOST] if dice.random() < 0.9 else None,
            dice.random() < 0.9,
            job.timeouts.close_grace,
            tuple((outcome, last_grace(job.timeouts, job.settings, outcome)) for outcome in Outcome),
            MARGIN,
        )
        self.host_gone = dice.random() < 0.1
        """Slurm has taken this node out of the job."""
        self.slurm_away = dice.random() < 0.1
        self._others = Verdict(dice.choice((Outcome.SUCCESS, Outcome.FAILED)), "of another launch")
        self._finds_others = dice.random() < 0.3
        self._found = False
        self.machine = world.machines.launch(begin)
        self.checks = LaunchChecks(self, begin)
        self.srun = SimSrun(self, dice)
        world.after(0.0, self.do, self._begin)

    # -- for the world

    def signal(self, name: str) -> None:
        """Send a signal to this process alone."""
        self.do(self._be_signalled, name)

    def srun_ended(self, code: int) -> None:
        """Let the machine handle srun's end."""
        self.do(self.feed, interface.SrunEnded(code))

    def kill_tasks(self) -> None:
        """Kill all the job's processes on the nodes, as srun or the job's end does."""
        for node in self.world.nodes:
            if node.up:
                self.world.checks.touched.add(node.rank)
                node.end(None)
                node.kill_workers()

    def die(self) -> None:
        """End with the node. Slurm lets the rest of the job go on (srun --no-kill)."""
        self.alive = False

    # -- the shell

    def _begin(self) -> None:
        self._perform(self.machine.start(self.world.now))
        self._look()

    def _be_signalled(self, name: str) -> None:
        self.checks.signalled(name)
        self.feed(Signalled(name))

    def feed(self, event: interface.LaunchEvent) -> None:
        """Let the machine handle an event, and carry out its actions. To be called by way of `do`."""
        if not self.alive:
            return
        if self.world.history is not None:
            self.world.note("launch", f"<- {brief(event)}")
        self.checks.event(event)
        todo = self.checks.validated(self.machine, event)
        self._perform(todo)
        if self.machine.next_tick < 1e9:
            self.world.at(self.machine.next_tick, self.do, self._tick)

    def _tick(self) -> None:
        if self.world.now >= self.machine.next_tick:
            self.feed(Tick())

    def _perform(self, todo: list[interface.LaunchAction]) -> None:
        for action in todo:
            if self.world.history is not None:
                self.world.note("launch", f"-> {brief(action)}")
            self.checks.action(action)
            match action:
                case interface.StartSrun():
                    self.feed(interface.SrunStarted())
                case interface.SignalSrun(name):
                    self.srun.signal(name)
                case interface.WriteEndComment():
                    self._answer(interface.CommentWritten("away" if self.slurm_away else ""))
                case interface.ForbidAnotherRun():
                    self._answer(interface.RequeueForbidden(problem="away" if self.slurm_away else ""))
                case interface.RunJobAgain():
                    self._answer(interface.Requeued("away" if self.slurm_away else ""))
                case interface.AskForHost():
                    gone = self.host_gone and not self.slurm_away
                    self._answer(interface.HostAnswered(gone))
                case interface.EndJob():
                    self._answer(interface.CompletingEnded(), COMPLETE_TIME)
                case Leave():
                    self._leave()

    def _answer(self, event: interface.LaunchEvent, time: tuple[float, float] = ANSWER_TIME) -> None:
        self.world.after(self._dice.uniform(*time), self.do, self.feed, event)

    def _look(self) -> None:
        """Look for a verdict in the run's folder and in this node's own, as the shell's two threads do."""
        if not self.alive or self._found:
            return
        shared = self.world.file if not self.world.files_away else None
        verdict = shared or self.world.nodes[HOST].kept
        if self._finds_others and self.world.now > 1.0:
            self._finds_others = False
            self.world.after(
                self._dice.uniform(*FILE_TIME), self.do, self.feed, interface.OthersVerdict(self._others, "1.9.0")
            )
        if verdict is not None:
            self._found = True
            self.world.after(
                self._dice.uniform(*FILE_TIME), self.do, self.feed, interface.VerdictRead(verdict, "1.0.0")
            )
        else:
            self.world.after(PERIOD, self.do, self._look)

    def _leave(self) -> None:
        """End the batch script, and the job with it."""
        self.alive = False
        self.world.after(self._dice.uniform(0.0, 1.0), self.kill_tasks)
