"""The command line of the lab."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from .errors import ArchiveMoved, LabError
from .lab import Lab
from .prefix import BASE
from .releases import CLUSTERS, DEFAULT_RELEASE, LAB_USER, RELEASES, lab_dir
from .settings import TOPOLOGIES, Parameters

MOVED = 3
DESCRIPTION = """\
A real Slurm cluster on this machine, as root: slurmctld, slurmdbd with MariaDB, munge, and one slurmd for each node,
every node with a network, processes, mounts and a host name of its own. Nothing outside its own namespaces is touched.
"""
EXAMPLES = f"""\
examples:
  scripts/slurm-lab up                                 four nodes, Slurm {DEFAULT_RELEASE}
  scripts/slurm-lab run -- srun -N4 hostname           as on a login node, as root
  scripts/slurm-lab run --user {LAB_USER} -- sbatch job.sh    as the lab's unprivileged user
  scripts/slurm-lab kill-node n2                       its power fails
  scripts/slurm-lab restore-node n2
  scripts/slurm-lab cut-node n2 --only out             the others reach it, and it does not reach them
  scripts/slurm-lab heal-node n2
  scripts/slurm-lab freeze-node n2                     until thaw-node n2
  scripts/slurm-lab on-node n1 -- ps ax
  scripts/slurm-lab down
  scripts/slurm-lab up --slurm 22.05 --nodes 2         another release, beside the first
  scripts/slurm-lab up --prefix /opt/slurm-25.11       a Slurm that was built by hand and installed there

Chroots, state and logs lie in {lab_dir()} ($FT_SLURM_LAB_DIR); the chroots are built once and kept. A release has up to
{CLUSTERS} clusters side by side: $FT_SLURM_LAB_CLUSTER (0 to {CLUSTERS - 1}) selects one. The checkout, the Python
installation and /tmp are there inside at the same paths. A Slurm of a folder runs there at its own path, on
Debian {BASE}; it needs munge's and MySQL's plugins, and each command needs the same --prefix.
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Return the exit code, MOVED when Debian no longer has the release. `run` and `on-node` become
    the command instead of returning."""
    options = _parser().parse_args(arguments)
    if os.geteuid() != 0:
        print("slurm-lab: needs root", file=sys.stderr)
        return 1
    os.umask(0o022)
    try:
        _carry_out(options, Lab(options.prefix or options.slurm))
    except LabError as error:
        print(f"slurm-lab: {error}", file=sys.stderr)
        return MOVED if isinstance(error, ArchiveMoved) else 1
    except subprocess.TimeoutExpired as error:
        print(f"slurm-lab: no answer within {error.timeout:.0f} s: {error.cmd}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="slurm-lab", description=DESCRIPTION, epilog=EXAMPLES, formatter_class=raw)
    common = argparse.ArgumentParser(add_help=False)
    which = common.add_mutually_exclusive_group()
    which.add_argument("--slurm", choices=sorted(RELEASES), default=DEFAULT_RELEASE, help="default: %(default)s")
    which.add_argument("--prefix", type=Path, metavar="DIR", help="the Slurm that is installed below this folder")
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", parents=[common])

    up = add("up", "bring the cluster up, unless it is up and healthy with the same options")
    up.add_argument("--nodes", type=int, default=4, help="default: %(default)s")
    up.add_argument("--slurmd-timeout", type=int, default=10, metavar="SECONDS", help="default: %(default)s")
    up.add_argument("--topology", choices=TOPOLOGIES, default="none", help="default: %(default)s")
    up.add_argument("--conf-line", action="append", default=[], metavar="LINE", help="a further line of slurm.conf")
    add("down", "end everything that `up` started; chroot and logs stay")
    run = add("run", "run a command as on a login node")
    run.add_argument("--user", metavar="NAME", help=f"as this user of the lab ({LAB_USER}); default: root")
    run.add_argument("--cwd", type=Path, metavar="DIR", help="working folder; default: this one")
    on_node = add("on-node", "run a command on a node, as root, among its processes")
    on_node.add_argument("node", metavar="NAME")
    for each in (run, on_node):
        each.add_argument("command", nargs="+", metavar="-- CMD")
    for name, text in (
        ("kill-node", "end a node and all that runs on it at once, as when its power fails"),
        ("restore-node", "start a dead node again and wait until it is idle"),
        ("cut-node", "take a node off the network, or, with --only, one direction of it"),
        ("heal-node", "end a cut of either kind"),
        ("freeze-node", "stop every process on a node (SIGSTOP), Slurm's daemons included"),
        ("thaw-node", "let a frozen node go on (SIGCONT)"),
    ):
        command = add(name, text)
        command.add_argument("node", metavar="NAME")
        if name == "cut-node":
            directions = "lose only what is sent to it (in), or only what it sends (out)"
            command.add_argument("--only", choices=("in", "out"), help=directions)
    for name in ("stop-daemon", "start-daemon"):
        text = f"{name.partition('-')[0]} one of the controller's daemons"
        add(name, text).add_argument("daemon", choices=("slurmctld", "slurmdbd"))
    add("status", "show the state of the cluster")
    add("build", "build the chroot only")
    return parser


def _carry_out(options: argparse.Namespace, lab: Lab) -> None:
    match options.action:
        case "up":
            wanted = Parameters(
                nodes=options.nodes,
                slurmd_timeout=options.slurmd_timeout,
                topology=options.topology,
                conf_lines=tuple(options.conf_line),
            )
            started = lab.up(wanted)
            print(f"Slurm {lab.release}: {options.nodes} nodes {'are up' if started else 'were up already'}")
        case "down":
            lab.down()
        case "run":
            _become(lab, lab.command(options.command, user=options.user, cwd=options.cwd or Path.cwd()), options.user)
        case "on-node":
            _become(lab, lab.command(options.command, node=options.node), None)
        case "kill-node":
            lab.kill_node(options.node)
        case "restore-node":
            lab.restore_node(options.node)
        case "cut-node":
            lab.cut_node(options.node, options.only)
        case "heal-node":
            lab.heal_node(options.node)
        case "freeze-node":
            lab.freeze_node(options.node)
        case "thaw-node":
            lab.thaw_node(options.node)
        case "stop-daemon":
            lab.stop_daemon(options.daemon)
        case "start-daemon":
            lab.start_daemon(options.daemon)
        case "status":
            print(lab.status())
        case "build":
            print(lab.build())


def _become(lab: Lab, command: list[str], user: str | None) -> NoReturn:
    sys.stdout.flush()
    os.execvpe(command[0], command, lab.environment(user))
