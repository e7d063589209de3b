"""The lab's fixture: every test that asks for `lab` runs on one Slurm release, with --all on two, once on each.
$FT_LAB_VERSIONS names others; with $FT_LAB_PREFIX it is only the Slurm that is installed below that folder.

With pytest's `-n 2` two clusters of the one release share the tests; several releases run side by side, each in a
process of its own. A machine that cannot hold the lab skips these tests; with CI=true that is a failure.
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
    """All tests of a release go to one process, as they share its cluster. Of a single release each process has a
    cluster, and gets the next test when it is done with one."""

    def _split_scope(self, nodeid: str) -> str:
        found = versions(self.config)
        return next((version for version in found if f"[{version}" in nodeid and len(found) > 1), nodeid)


def versions(config: pytest.Config) -> list[str]:
    """The releases that are tested; the first two numbers of each."""
    usual = "24.11 22.05" if config.getoption("--all", default=False) else DEFAULT_RELEASE
    return ["prefix"] if PREFIX else os.environ.get("FT_LAB_VERSIONS", usual).split()


@pytest.hookimpl(tryfirst=True)  # before other parameters, as ReleaseScheduling wants it
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release_lab" in metafunc.fixturenames:
        metafunc.parametrize("release_lab", versions(metafunc.config), indirect=True, scope="session")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ReleaseScheduling:
    config.option.loadscopereorder = False
    return ReleaseScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that want the same cluster follow one another, as each process makes a new one for every change; the
    longest are first, so that two processes end at about the same time."""
    first = [Path(__file__).with_name(name) for name in ("test_chaos.py", "test_takeover.py", "test_policies.py")]

    def place(item: pytest.Item) -> int:
        return first.index(item.path) if item.path in first else len(first)

    items.sort(key=place)


@pytest.fixture(scope="session")
def release_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The release's lab, built when it is needed first; taken down before the next release's, leaving nothing."""
    reason = why_not()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        os.environ["FT_SLURM_LAB_CLUSTER"] = worker.removeprefix("gw")
    # Tests say which nodes die. The next one, or another cluster's at the same time, must not choose these last.
    os.environ["FT_SUPERVISOR__NODES__MEMORY"] = "none"
    lab = Lab(Path(PREFIX) if PREFIX else request.param)
    yield lab
    lab.down()
    assert remaining(lab) == []


@pytest.fixture
def default_release(pytestconfig: pytest.Config, release_lab: Lab) -> None:
    """For what needs no second release."""
    only_on(pytestconfig, release_lab, DEFAULT_RELEASE)


def only_on(config: pytest.Config, release_lab: Lab, version: str) -> None:
    """Skips the test on other releases, unless this one is not tested at all."""
    if release_lab.release.version != version and version in versions(config):
        pytest.skip(f"on Slurm {version} only")


@pytest.fixture
def lab(release_lab: Lab) -> Lab:
    """A healthy cluster of four idle nodes, n0 to n3, without jobs, and without traces of the test before."""
    release_lab.renew(STANDARD)
    return release_lab


def remaining(lab: Lab, patience: float = 30.0) -> list[str]:
    """Lists what is left of a lab that was taken down; killed processes get `patience` seconds to be reaped."""
    end = time.monotonic() + patience
    while (left := lab.leftovers()) and time.monotonic() < end:
        time.sleep(0.05)
    return left
