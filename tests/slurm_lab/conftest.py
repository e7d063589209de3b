"""The lab's fixture: every test that asks for `lab` runs once on each Slurm release of $FT_LAB_VERSIONS, or only on the
Slurm that is installed below $FT_LAB_PREFIX.

With pytest's `-n 2` the releases run side by side, each in a process of its own; without it they take
turns. A machine that cannot hold the lab skips these tests; with CI=true that is a failure.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from slurm_lab import DEFAULT_RELEASE, Lab, Parameters

os.environ.pop("XDG_STATE_HOME", None)  # the users of the lab have homes of their own
PREFIX = os.environ.get("FT_LAB_PREFIX", "")
VERSIONS = ["prefix"] if PREFIX else os.environ.get("FT_LAB_VERSIONS", "24.11 22.05").split()
# On a busy machine slurmctld calls live nodes DOWN with less; tests that wait for DOWN ask for less themselves.
STANDARD = Parameters(nodes=4, slurmd_timeout=30)
QUICK_REQUEUE = ("AuthInfo=cred_expire=10", "SchedulerParameters=sched_interval=3,bf_interval=3")
"""A requeued job may start again that many seconds after its end, 120 unless this is said, and is looked at then."""


def why_not() -> str | None:
    """Why this machine cannot hold the lab, in words; None when it can."""
    if os.geteuid() != 0:
        return "the Slurm lab needs root"
    namespaces = ["unshare", "--net", "--pid", "--mount", "--uts", "--ipc", "--fork", "true"]
    done = subprocess.run(namespaces, capture_output=True, text=True)
    return None if done.returncode == 0 else f"the Slurm lab needs Linux namespaces: {done.stderr.strip()}"


class ReleaseScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """All tests of a release go to one process, as they share its cluster."""

    def _split_scope(self, nodeid: str) -> str:
        return next((version for version in VERSIONS if f"[{version}" in nodeid), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ReleaseScheduling:
    return ReleaseScheduling(config, log)


@pytest.fixture(scope="session", params=VERSIONS)
def release_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The release's lab, built when it is needed first; taken down before the next release's, leaving nothing."""
    reason = why_not()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    lab = Lab(Path(PREFIX) if PREFIX else request.param)
    yield lab
    lab.down()
    assert remaining(lab) == []


@pytest.fixture
def default_release(release_lab: Lab) -> None:
    """For what needs no second release: every minute of the tests is somebody's."""
    only_on(release_lab, DEFAULT_RELEASE)


def only_on(release_lab: Lab, version: str) -> None:
    if release_lab.release.version != version and version in VERSIONS:
        pytest.skip(f"on Slurm {version} only")


@pytest.fixture
def lab(release_lab: Lab) -> Lab:
    """A healthy cluster of four idle nodes, n0 to n3, without jobs, whatever the test before did to it."""
    if not release_lab.up(STANDARD):
        release_lab.restore_all()
    return release_lab


def remaining(lab: Lab, patience: float = 30.0) -> list[str]:
    """What is left of a lab that was taken down; parents of what was killed get `patience` seconds to notice."""
    end = time.monotonic() + patience
    while (left := lab.leftovers()) and time.monotonic() < end:
        time.sleep(0.05)
    return left
