"""Tests which line of a worker's output is taken for the exception that ended it."""

import subprocess
import sys
from pathlib import Path

import pytest

from ft_supervisor.agent.exceptions import last_exception

HEAD = "Traceback (most recent call last):\n"
STACK = '  File "/x/train.py", line 9, in <module>\n    main()\n    ~~~~^^\n'
NAN = "ValueError: loss is nan at step 1769"
SEGFAULT = "Fatal Python error: Segmentation fault"


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("step 1\nstep 2\n", ""),
        ("", ""),
        (f"step 1\n{HEAD}{STACK}{NAN}\n", NAN),
        (f"{HEAD}{STACK}{NAN}", NAN),
        (f"{HEAD}{STACK}{NAN}\nstep 5\nWARNING: destroy_process_group() was not called\n", NAN),
        (f"{HEAD}{STACK}KeyboardInterrupt\n", "KeyboardInterrupt"),
        (f"{HEAD}{STACK}AssertionError\n", "AssertionError"),
        (f"{HEAD}{STACK}my.package.Boom: with words\n", "my.package.Boom: with words"),
        (f"{HEAD}{STACK}ValueError: one\ntwo\n\nthree: four\n", "ValueError: one"),
        (f"{HEAD}{STACK}RuntimeError:\n  the message is below\n", "RuntimeError: the message is below"),
        (
            '  File "train.py", line 3\n    def (\n        ^\nSyntaxError: invalid syntax\n',
            "SyntaxError: invalid syntax",
        ),
        ("".join(f"[rank3]: {line}\n" for line in f"{HEAD}{STACK}{NAN}".splitlines()), NAN),
        (f"\x1b[1;35m{HEAD}\x1b[0m{STACK}\x1b[1;31m{NAN}\x1b[0m\n", NAN),
        (f" 50%|####    | 1/2\r{NAN}\n", NAN),
        (
            f"{HEAD}{STACK}KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
            f"{HEAD}{STACK}{NAN}\n",
            NAN,
        ),
        (
            f"{HEAD}{STACK}OSError: no\n\nThe above exception was the direct cause of the following exception:\n\n"
            f"{HEAD}{STACK}{NAN}\n",
            NAN,
        ),
        (
            f"  + Exception Group {HEAD}  | {STACK}  | ExceptionGroup: unhandled errors (2 sub-exceptions)\n"
            f"  +-+---------------- 1 ----------------\n    | {HEAD}    |   File x\n    | KeyError: 'a'\n"
            f"    +---------------- 2 ----------------\n    | {HEAD}    |   File x\n    | {NAN}\n"
            "    +------------------------------------\n",
            NAN,
        ),
    ],
)
def test_the_exception_of_a_python_program(output: str, found: str) -> None:
    assert last_exception(output.encode()) == found


NCCL = "torch.distributed.DistBackendError: NCCL error in: /x/NCCLUtils.cpp:93, remote process exited, NCCL 2.27"
CUDA = "torch.AcceleratorError: CUDA error: device-side assert triggered"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB"
WATCHDOG = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)"


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (
            f"{HEAD}{STACK}{NCCL}\nncclRemoteError: A call failed possibly due to a network error\nLast error:\n"
            "socketPollConnect: connect to 10.0.0.1<4242> returned Connection refused\n",
            NCCL,
        ),
        (
            f"{HEAD}{STACK}{CUDA}\nCUDA kernel errors might be asynchronously reported at some other API call.\n"
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n",
            CUDA,
        ),
        (f"{HEAD}{STACK}{MEMORY}\n", MEMORY),
        (
            f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  {WATCHDOG}\n"
            "Exception raised from checkTimeout at /x/ProcessGroupNCCL.cpp:632 (most recent call first):\n"
            "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f in /x/libc10.so)\n",
            f"c10::DistBackendError: {WATCHDOG}",
        ),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"
            "Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n  File x\n",
            "std::bad_alloc: std::bad_alloc",
        ),
        (
            "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
            '  File "train.py", line 3 in <module>\n',
            SEGFAULT,
        ),
        (
            f"{HEAD}{STACK}{NAN}\nstep 8\nFatal Python error: Segmentation fault\n",
            SEGFAULT,
        ),
        (
            f"{HEAD}{STACK}{NAN}\n{HEAD}{STACK}torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
            "============================================================\ntrain.py FAILED\n"
            "Root Cause (first observed failure):\n[0]:\n  exitcode  : 1 (pid: 7)\n  error_file: <N/A>\n",
            NAN,
        ),
        (
            f"{HEAD}{STACK}subprocess.CalledProcessError: Command '['x']' returned non-zero exit status 1.\n",
            "subprocess.CalledProcessError: Command '['x']' returned non-zero exit status 1.",
        ),
        (
            f"\n\n-- Process 1 terminated with the following error:\n{HEAD}{STACK}{NAN}\n\n"
            f"{HEAD}{STACK}torch.multiprocessing.spawn.ProcessRaisedException: \n",
            NAN,
        ),
        ("usage: train.py [-h] --lr LR\ntrain.py: error: the following arguments are required: --lr\n", ""),
        ("2026-11-22 10:00:00 ERROR Error: see above\nerror: no\nNote: nothing\n", ""),
        ("/x/a.py:3: UserWarning: be careful\n  warnings.warn()\n", ""),
    ],
)
def test_the_exception_of_libraries_and_launchers(output: str, found: str) -> None:
    assert last_exception(output.encode()) == found


def test_it_is_one_line_that_any_log_can_take() -> None:
    assert last_exception(b"\xff\xfe\x00\x01" * 4096 + b"\n" + bytes(range(256)) * 64) == ""
    found = last_exception(b"ValueError: \xff\x00\x1b[2Ja\tb" + b"x" * 100_000)
    assert found.startswith("ValueError: ") and len(found) <= 500 and found.isprintable()


def test_one_that_was_printed_long_ago_is_not_the_end() -> None:
    assert last_exception((f"{NAN}\n" + "step\n" * 1000).encode()) == ""


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("raise ValueError('loss is nan')", "ValueError: loss is nan"),
        ("class Boom(Exception): pass\nraise Boom('x', 1)", "Boom: ('x', 1)"),
        ("raise ExceptionGroup('two', [KeyError(1), ValueError('loss is nan')])", "ValueError: loss is nan"),
        ("try:\n  1 / 0\nexcept Exception as e:\n  raise RuntimeError('no') from e", "RuntimeError: no"),
        ("def", "SyntaxError: invalid syntax"),
        (
            "import faulthandler, os\nfaulthandler.enable()\nos.kill(os.getpid(), 11)",
            SEGFAULT,
        ),
        ("import sys\nsys.exit(3)", ""),
    ],
)
def test_what_this_python_prints_is_understood(tmp_path: Path, script: str, found: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, path], capture_output=True, timeout=60, check=False)
    assert done.returncode != 0 and last_exception(done.stdout + done.stderr) == found
