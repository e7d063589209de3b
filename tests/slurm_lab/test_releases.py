"""The lab finds its Slurm in Debian's archive, or installed below a folder, and says when it does not."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from slurm_lab import RELEASES, ArchiveMoved, Lab, LabError, archive
from slurm_lab.cli import main
from slurm_lab.machine import with_first
from slurm_lab.prefix import COMMANDS, DAEMONS, HEADER, PLUGINS, missing_libraries
from slurm_lab.releases import Pin

MADISON = """\
libmariadb3 | 1:11.8.9+ds-2 | http://mirror.example/debian forky/main amd64 Packages
libmariadb3 | 1:11.8.6-0+deb13u1 | http://mirror.example/debian trixie/main amd64 Packages
"""
LDD = """\
/opt/slurm/sbin/slurmctld: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.42' not found (required by /opt/slurm/x)
/opt/slurm/sbin/slurmctld:
\tlinux-vdso.so.1 (0x00007ffd)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
/opt/slurm/lib/slurm/auth_munge.so:
\tlibmunge.so.3 => not found
/opt/slurm/lib/slurm/accounting_storage_mysql.so:
\tlibmunge.so.3 => not found
"""


def test_version_of_the_suite_that_was_asked_for() -> None:
    assert (
        archive.fitting(MADISON, Pin(package="libmariadb3", version="1:11.8.6-*", suite="trixie"))
        == "1:11.8.6-0+deb13u1"
    )


@pytest.mark.parametrize(
    ("suite", "has"), [("forky", "Debian forky has 1:11.8.9+ds-2 of"), ("sid", "Debian sid has none of")]
)
def test_archive_that_has_moved_on(suite: str, has: str) -> None:
    with pytest.raises(ArchiveMoved, match="^" + has.replace("+", r"\+") + r" libmariadb3, not 1:11\.8\.6-\*$"):
        archive.fitting(MADISON, Pin(package="libmariadb3", version="1:11.8.6-*", suite=suite))


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt is not here")
def test_mirror_that_does_not_answer_is_no_moved_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unheard:  # bound, and nothing listens
        unheard.bind(("127.0.0.1", 0))
        monkeypatch.setattr(archive, "mirror", lambda: f"http://127.0.0.1:{unheard.getsockname()[1]}/debian")
        with pytest.raises(LabError, match="update failed") as caught:
            archive.Archive(tmp_path / "apt", ["forky"])
    assert not isinstance(caught.value, ArchiveMoved)


def test_releases_that_do_not_move_ask_for_no_version() -> None:
    assert [name for name, release in RELEASES.items() if release.expected is not None] == ["26.05"]


@pytest.mark.parametrize(("error", "code"), [(ArchiveMoved("no more"), 3), (LabError("broken"), 1)])
def test_only_a_moved_archive_has_the_exit_code_that_skips(
    error: LabError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(lab: Lab) -> None:
        raise error

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Lab, "build", fail)
    assert main(["build", "--slurm", "26.05"]) == code
    assert capsys.readouterr().err == f"slurm-lab: {error}\n"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """What `make install` leaves, as far as the lab looks at it."""
    for name in (*DAEMONS, *COMMANDS, HEADER, *(f"lib/slurm/{plugin}" for plugin in PLUGINS), "lib/libslurm.so.44"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / HEADER).write_text("#define OTHER 1\n#define SLURM_VERSION_NUMBER 0x190b07\n")
    return tmp_path


def test_slurm_of_a_folder(installed: Path) -> None:
    lab = Lab(installed)
    assert lab.status() == f"Slurm 25.11.7 of {installed}: down"
    assert (lab.release.version, lab.release.has_block_topology) == ("25.11", True)
    assert not [name for name in lab.release.packages if name.startswith("slurm")]
    (installed / HEADER).write_text("#define SLURM_VERSION_NUMBER 0x160508\n")
    assert (Lab(installed).release.version, Lab(installed).release.has_block_topology) == ("22.05", False)


def test_each_folder_has_a_cluster_of_its_own(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "link"
    other.symlink_to(installed)
    assert len({Lab(installed).base, Lab(other).base, *(Lab(name).base for name in RELEASES)}) == 2 + len(RELEASES)


def test_clusters_of_one_release_share_its_chroot_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FT_SLURM_LAB_CLUSTER", raising=False)  # a parallel run of these tests has it
    first = Lab()
    monkeypatch.setenv("FT_SLURM_LAB_CLUSTER", "1")
    second = Lab()
    assert first.layout.root == second.layout.root
    assert (first.layout.cluster.name, second.layout.cluster.name) == ("cluster", "cluster-1")
    for number in ("4", "-1", "x"):
        monkeypatch.setenv("FT_SLURM_LAB_CLUSTER", number)
        with pytest.raises(LabError, match=f"^FT_SLURM_LAB_CLUSTER={number}: from 0 to 3$"):
            Lab()


def test_its_commands_and_libraries_come_first(installed: Path) -> None:
    own = {"PATH": "/usr/bin", "SLURM_CONF": "/elsewhere", "HOME": "/root"}
    assert with_first(own, Lab(installed).release.environment) == {
        "PATH": f"{installed}/sbin:{installed}/bin:/usr/bin",
        "LD_LIBRARY_PATH": f"{installed}/lib",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "HOME": "/root",
    }
    assert with_first(own, RELEASES["24.11"].environment) == {"PATH": "/usr/bin", "HOME": "/root"}


def test_folder_without_slurm_is_refused_in_words(installed: Path) -> None:
    (installed / "lib/slurm/accounting_storage_mysql.so").unlink()
    with pytest.raises(LabError, match=r"built without accounting_storage_mysql\.so, which the lab needs$"):
        Lab(installed)
    (installed / HEADER).write_text("")
    (installed / "lib/slurm/accounting_storage_mysql.so").touch()
    with pytest.raises(LabError, match="has no SLURM_VERSION_NUMBER"):
        Lab(installed)
    (installed / "sbin/slurmctld").unlink()
    with pytest.raises(LabError, match=rf"^no Slurm is installed below {installed}: there is no sbin/slurmctld$"):
        Lab(installed)


def test_libraries_that_are_missing_are_named_once() -> None:
    assert missing_libraries(LDD) == [
        "/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.42'",
        "libmunge.so.3",
    ]
