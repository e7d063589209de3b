"""warm_start.py alone: a script, module or archive sees the same whether its interpreter was started ahead or not."""

import json
import os
import py_compile
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agent.harness import BOUND

from ft_supervisor.agent import warm_start
from ft_supervisor.agent.warm_workers import warm_command


class Ahead:
    """The agent's end of one warm worker."""

    def __init__(self, folder: Path, command: list[str], preload: tuple[str, ...], **environ: str) -> None:
        name = folder / "socket"
        name.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(name))
            listening.listen()
            listening.settimeout(BOUND)
            self.process = subprocess.Popen(
                warm_command(tuple(command), preload),
                cwd=folder,
                env={**os.environ, **environ, warm_start.SOCKET: str(name)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self.socket, _ = listening.accept()
        self.socket.settimeout(BOUND)
        hello = self.receive()
        assert hello == {"type": "hello", "version": 1, "pid": self.process.pid, "kind": "warm"}

    def receive(self) -> dict[str, object] | None:
        """Return the next message; None at the connection's end."""
        data = self.socket.recv(1 << 16)
        return json.loads(data) if data else None

    def run(self, env: dict[str, str]) -> tuple[int, bytes, bytes]:
        """Let the script run. Return exit code, stdout, stderr."""
        message = self.receive()
        assert message is not None and message["type"] == "warm", message
        pipes = [os.pipe(), os.pipe()]
        order = {"type": "run", "cycle": "0.1", "env": env}
        socket.send_fds(self.socket, [json.dumps(order).encode()], [writing for _, writing in pipes])
        assert self.receive() == {"type": "started", "cycle": "0.1"}
        assert self.receive() is None
        texts = []
        for reading, writing in pipes:
            os.close(writing)
            with os.fdopen(reading, "rb") as file:
                texts.append(file.read())
        return self.process.wait(BOUND), texts[0], texts[1]

    def close(self) -> None:
        self.socket.close()
        self.process.communicate(timeout=BOUND)


Start = Callable[..., Ahead]


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[Start]:
    started: list[Ahead] = []

    def start(*command: str, preload: tuple[str, ...] = ("json",), **environ: str) -> Ahead:
        started.append(Ahead(tmp_path, list(command), preload, **environ))
        return started[-1]

    yield start
    for one in started:
        one.close()


def python(*words: str) -> list[str]:
    return [sys.executable, "-S", *words]


def cold(folder: Path, command: list[str], env: dict[str, str]) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **env}, capture_output=True, timeout=BOUND, check=False
    )
    return done.returncode, done.stdout, done.stderr


SCRIPTS = {
    "names": "print(__name__, __file__, __doc__, __spec__, __package__, sorted(globals()), __annotations__)",
    "doc": '"""A script."""\nx: int = 1\nprint(__doc__, __annotations__, __loader__.name, __loader__.path)',
    "argv": "import sys\nprint(sys.argv, sys.orig_argv[2:], sys.path)",
    "environ": "import os\nprint(os.environ['RANK'], os.getenv('OTHER'), os.system('echo $RANK'), flush=True)",
    "exception": "def f():\n    raise ValueError('bad')\nf()",
    "chain": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('worse') from e",
    "group": "raise ExceptionGroup('both', [ValueError(1), TypeError(2)])",
    "syntax": "def f(:\n    pass",
    "encoding": "# coding: latin-1\nprint(ascii('\xe9'))",
    "exit-text": "import sys\nsys.exit('a reason')",
    "exit-3": "raise SystemExit(3)",
    "exit-none": "import sys\nsys.exit()",
    "hook": "import sys\nsys.excepthook = lambda k, v, t: print(k, v, t.tb_frame.f_code.co_name)\nraise ValueError(1)",
    "own-hook": "import sys\nprint(sys.excepthook is sys.__excepthook__)",
    "last": (
        "import atexit, sys, traceback\n"
        "atexit.register(lambda: traceback.print_tb(sys.last_traceback))\nraise ValueError"
    ),
    "interrupt": "raise KeyboardInterrupt",
    "interrupted": "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)",
    "killed": "import os\nos.kill(os.getpid(), 9)",
    "thread": "import threading\nthreading.Thread(target=lambda: print(threading.active_count())).start()",
    "atexit": "import atexit\natexit.register(print, 'the end')",
    "pickle": "import pickle\nclass A: x = 1\nprint(pickle.loads(pickle.dumps(A())).x, A.__module__)",
    "source": "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), inspect.getsourcefile(f))",
    "warning": "import warnings\nwarnings.warn('careful')",
    "unraisable": "class A:\n    def __del__(self): raise ValueError('lost')\n"
    "import sys\nsys.unraisablehook = lambda lost: print(lost.exc_value)\nA()",
    "import-main": "import __main__\nx = 2\nprint(__main__.x, __main__.__dict__ is globals())",
    "neighbour": "import neighbour\nprint(neighbour.__file__)",
    "spawn": (
        "import multiprocessing as mp\ndef f(x): return x + 1\n"
        "if __name__ == '__main__':\n    with mp.get_context('spawn').Pool(1) as p: print(p.map(f, [1]), __name__)"
    ),
    "forkserver": (
        "import multiprocessing as mp\ndef f(q): q.put(__name__)\n"
        "if __name__ == '__main__':\n    c = mp.get_context('forkserver'); q = c.Queue()\n"
        "    p = c.Process(target=f, args=(q,)); p.start(); print(q.get()); p.join()"
    ),
    "future": "from __future__ import annotations\ndef f(x: nothing): ...\nprint(f.__annotations__)",
    "no-future": "try:\n    def f(x: nothing): ...\nexcept NameError as e: print(e)",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_cannot_tell(name: str, ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(SCRIPTS[name].encode("latin-1" if name == "encoding" else "utf-8"))
    (tmp_path / "neighbour.py").touch()
    command, env = python("train.py", "--lr", "1"), {"RANK": "3"}
    assert ahead(*command).run(env) == cold(tmp_path, command, env)


def package(folder: Path) -> None:
    """Make a package, a folder and a zip file that Python can run."""
    code = (
        "import sys\nfrom . import part\n"
        "print(__name__, __package__, __spec__.name, sys.argv, sys.path[:2], __file__)\n"
        "print('pkg' in sys.modules, sys.modules['__main__'].__dict__ is globals())\nraise ValueError('bad')"
    )
    (folder / "pkg" / "sub").mkdir(parents=True)
    (folder / "pkg" / "__init__.py").write_text("print('parent', __name__)\nimport sys\nprint(sys.argv)")
    (folder / "pkg" / "part.py").touch()
    (folder / "pkg" / "__main__.py").write_text(code)
    (folder / "pkg" / "train.py").write_text(code)
    (folder / "pkg" / "sub" / "__init__.py").touch()
    (folder / "folder").mkdir()
    alone = "import sys, beside\nprint(__name__, sys.argv, sys.path[0], __file__, __package__)\nraise ValueError(1)"
    (folder / "folder" / "__main__.py").write_text(alone)
    (folder / "folder" / "beside.py").touch()
    with zipfile.ZipFile(folder / "train.zip", "w") as archive:
        archive.writestr("__main__.py", alone)
        archive.writestr("beside.py", "")
    (folder / "link.py").symlink_to(folder / "elsewhere" / "real.py")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "real.py").write_text("import sys\nprint(sys.path[0], __file__)")
    py_compile.compile(str(folder / "elsewhere" / "real.py"), str(folder / "train.pyc"))


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "pkg", "--lr", "1"],
        ["-m", "pkg.train", "--lr", "1"],
        ["-mpkg.train", "x"],
        ["-m", "pkg.sub"],
        ["-m", "pkg.none"],
        ["-m", "none"],
        ["folder", "x"],
        ["./folder/", "x"],
        ["train.zip", "x"],
        ["train.pyc", "x"],
        ["link.py"],
        ["./link.py"],
        ["elsewhere/../elsewhere/real.py"],
        ["elsewhere"],
        ["none.py"],
        ["-P", "link.py"],
        ["-I", "link.py"],
        ["-E", "-s", "-B", "link.py"],
        ["-W", "error", "-X", "dev", "-u", "link.py"],
        ["-OO", "--", "link.py"],
    ],
)
def test_modules_folders_archives_and_links(words: list[str], ahead: Start, tmp_path: Path) -> None:
    package(tmp_path)
    expected = cold(tmp_path, python(*words), {})
    assert ahead(*python(*words)).run({}) == expected


def test_a_prefix_of_the_command(ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nprint(os.environ['RANK'], os.environ['X'], os.environ['LATE'])")
    command = ["env", "RANK=5", "X=1", *python("train.py")]
    env = {"RANK": "3", "LATE": "2"}
    expected = cold(tmp_path, command, env)
    assert expected[1] == b"5 1 2\n"
    assert ahead(*command).run(env) == expected


def test_modules_see_what_they_would_see_below_the_script(ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import early\nprint(early.seen)")
    (tmp_path / "early.py").write_text("import sys\nseen = sys.argv, sys.path, sys.orig_argv[2:], __file__")
    command = python("./train.py", "--lr", "1")
    expected = cold(tmp_path, command, {})
    assert ahead(*command, preload=("early",)).run({}) == expected
    command = python("-m", "train", "--lr", "1")
    (tmp_path / "early.py").write_text("import sys\nseen = sys.argv[1:], sys.path, sys.orig_argv[2:], __file__")
    expected = cold(tmp_path, command, {})
    assert ahead(*command, preload=("early",)).run({}) == expected


FAKE_TORCH = "class cuda:\n    @staticmethod\n    def is_initialized(): return {}"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ValueError('two\\nlines')", "import early: ValueError: two lines"),
        ("import sys; sys.exit(3)", "import early: SystemExit: 3"),
        ("import nothing_like_it", "import early: ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("import torch", "import early initializes CUDA"),
        ("raise ValueError('x' * 5000)", "import early: ValueError: " + "x" * 474),
    ],
)
def test_a_preload_that_cannot_work(code: str, reason: str, ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "torch.py").write_text(FAKE_TORCH.format(True))
    (tmp_path / "early.py").write_text(f"import atexit\natexit.register(print, 'not run')\n{code}")
    one = ahead(*python("train.py"), preload=("json", "early"))
    assert one.receive() == {"type": "cold", "reason": reason}
    assert one.process.poll() is None  # it waits until this is read
    one.socket.close()
    out, err = one.process.communicate(timeout=BOUND)
    assert (one.process.returncode, out, err.decode()) == (0, b"", f"warm worker: {reason}\n")


def test_a_torch_without_cuda_is_no_obstacle(ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nprint(torch.cuda.is_initialized())")
    (tmp_path / "torch.py").write_text(FAKE_TORCH.format(False))
    assert ahead(*python("train.py"), preload=("torch",)).run({}) == (0, b"False\n", b"")


def test_without_its_agent_it_ends(ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')")
    one = ahead(*python("train.py"))
    one.socket.close()
    assert one.process.wait(BOUND) == 1
    other = ahead(*python("train.py"))
    other.receive()
    other.socket.send(json.dumps({"type": "leave"}).encode())
    assert other.process.wait(BOUND) == 0
    alone = warm_command((*python("train.py"),), ("json",))
    without = {name: value for name, value in os.environ.items() if name != warm_start.SOCKET}
    done = subprocess.run(alone, cwd=tmp_path, env=without, capture_output=True, check=False, timeout=BOUND)
    assert done.returncode == 1 and b"FT_SUPERVISOR_SOCKET is not set" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_what_it_is_killed_by_is_seen(ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    one = ahead(*python("train.py"))
    one.receive()
    one.process.send_signal(signal.SIGTERM)
    assert one.process.wait(BOUND) == -signal.SIGTERM


def test_torch_is_there_and_compiles(ahead: Start, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\nassert 'torch' in sys.modules\nimport torch\n"
        "@torch.compile(backend='eager')\ndef f(x): return x.sin() + 1\n"
        "print(f(torch.zeros(2)).tolist(), torch.get_num_threads())\n"
        "class Model(torch.nn.Module): pass\ntorch.save(Model(), 'm.pt')\n"
        "print(type(torch.load('m.pt', weights_only=False)).__module__)"
    )
    command = [sys.executable, "train.py"]
    assert ahead(*command, preload=("torch",), OMP_NUM_THREADS="1").run({}) == (0, b"[1.0, 1.0] 1\n__main__\n", b"")
