"""Which commands can be started ahead, and where their two parts meet."""

import pytest

from ft_supervisor.core.protocol.interpreter import Interpreter, NoInterpreter, find_interpreter


@pytest.mark.parametrize(
    ("start", "runs"),
    [
        ("python", "train.py"),
        ("python3", "train.py --lr 1 -m x"),
        ("python3.11", "./src/train.py"),
        ("python3.13t", "train.py"),
        ("/opt/conda/bin/python", "train.py"),
        ("python -u -B -O -s -E -I -P", "train.py"),
        ("python -uBOO", "train.py"),
        ("python -X faulthandler -W error", "train.py"),
        ("python -Xfaulthandler -Werror::UserWarning", "train.py"),
        ("python -uX dev", "train.py"),
        ("python -uXdev -m", "train.py"),
        ("python --check-hash-based-pycs always", "train.py"),
        ("python --check-hash-based-pycs=never", "train.py"),
        ("python -u --", "-odd-name.py"),
        ("numactl -N 0 -m 0 python -u", "train.py"),
        ("env X=1 python", "train.py"),
        ("/usr/bin/env A=b C=d python3", "train.py"),
        ("setpriv --pdeathsig KILL -- python", "train.py"),
        ("bash bind.sh python", "train.py"),
        ("bash -e bind.sh -c python", "train.py"),
        ("uv run python", "train.py"),
        ("python", "folder.zip"),
        ("python", "train.py python -c x"),
    ],
)
def test_a_script(start: str, runs: str) -> None:
    if start.endswith(" -m"):
        start, runs = start.removesuffix(" -m"), f"-m {runs}"
    found = find_interpreter([*start.split(), *runs.split()])
    assert found == Interpreter(tuple(start.split()), tuple(runs.split()))


@pytest.mark.parametrize(
    ("command", "start"),
    [
        ("python -m pkg.train --lr 1", "python"),
        ("python -u -m pkg.train --lr 1", "python -u"),
        ("python -um pkg.train --lr 1", "python -u"),
        ("python -mpkg.train --lr 1", "python"),
        ("python -Bumpkg.train --lr 1", "python -Bu"),
        ("numactl python -W error -m pkg.train --lr 1", "numactl python -W error"),
    ],
)
def test_a_module(command: str, start: str) -> None:
    assert find_interpreter(command.split()) == Interpreter(tuple(start.split()), ("-m", "pkg.train", "--lr", "1"))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["./train"], "no word of it is a Python interpreter: it runs train"),
        (["/usr/bin/torchrun", "train.py"], "no word of it is a Python interpreter: it runs torchrun"),
        (["pythonic", "train.py"], "no word of it is a Python interpreter: it runs pythonic"),
        (["bash", "-c", "python train.py"], "bash -c runs it; write the program and its arguments as the command"),
        (["/bin/sh", "-ec", "exec python x"], "sh -c runs it; write the program and its arguments as the command"),
        (["bash", "-c", 'exec "$@"', "x", "python", "t.py"], "bash -c runs it; write the program and its arguments"),
        (["env", "zsh", "-lc", "python t.py"], "zsh -c runs it; write the program and its arguments as the command"),
        (["python", "-c", "pass"], "the code is in the command (python -c); put it into a file"),
        (["python", "-uc", "pass"], "the code is in the command (python -c); put it into a file"),
        (["python", "-ucpass"], "the code is in the command (python -c); put it into a file"),
        (["python", "-"], "the script comes from standard input (python -)"),
        (["python"], "the interpreter has neither a script nor -m"),
        (["python", "-u"], "the interpreter has neither a script nor -m"),
        (["python", "-X"], "the interpreter has neither a script nor -m"),
        (["python", "--"], "the interpreter has neither a script nor -m"),
        (["python", "-um"], "-m has no module"),
        (["python", "-V"], "-V prints the version"),
        (["python", "-ux", "t.py"], "-x skips the script's first line"),
        (["python", "--help", "t.py"], "--help prints something and ends, or is no option of Python's"),
    ],
)
def test_what_is_refused(command: list[str], reason: str) -> None:
    with pytest.raises(NoInterpreter) as error:
        find_interpreter(command)
    assert str(error.value).startswith(reason)
