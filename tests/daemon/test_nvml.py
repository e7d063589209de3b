"""NVML: a module that answers as a driver would, with pynvml's own structures and errors; and the real one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ft_supervisor.daemon import nvml
from ft_supervisor.daemon.nvml import NoNvml

pynvml: Any = pytest.importorskip("pynvml")
CLUSTER = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


class Gpu(SimpleNamespace):
    """What a GPU answers; an exception is raised."""

    ecc: Any = 0
    retired: Any = 0
    rows: Any = (0, 0, 0, 0)
    action: Any = 0
    handle: Any = None
    cluster: UUID = CLUSTER
    clique: int = 7
    state: int = pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    status: int = pynvml.NVML_SUCCESS
    fabric: Any = None
    fabric_v: Any = None


def said(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def error(name: str) -> Exception:
    return pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{name}"))  # type: ignore[no-any-return]


class Driver(SimpleNamespace):
    """A stand-in for the module `pynvml`: everything is its own but the calls that would need a driver."""

    def __init__(self, gpus: Sequence[Gpu], init: Exception | None = None) -> None:
        self.gpus = gpus
        self.init = init
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:
        said(self.init)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        said(self.gpus[index].handle)
        return self.gpus[index]

    def nvmlDeviceGetTotalEccErrors(self, gpu: Gpu, kind: int, counter: int) -> Any:
        assert (kind, counter) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return said(gpu.ecc)

    def nvmlDeviceGetRetiredPagesPendingStatus(self, gpu: Gpu) -> Any:
        return said(gpu.retired)

    def nvmlDeviceGetRemappedRows(self, gpu: Gpu) -> Any:
        return said(gpu.rows)

    def nvmlDeviceGetFieldValues(self, gpu: Gpu, fields: Sequence[int]) -> Any:
        assert fields == [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        values = (pynvml.c_nvmlFieldValue_t * 1)()
        values[0].fieldId = fields[0]
        if isinstance(gpu.action, int):
            values[0].value.uiVal = gpu.action
        else:
            values[0].nvmlReturn = gpu.action.value
        return values

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: Gpu, reference: Any) -> int:
        said(gpu.fabric_v)
        return self._tell(gpu, reference, pynvml.c_nvmlGpuFabricInfo_v2_t)

    def nvmlDeviceGetGpuFabricInfo(self, gpu: Gpu, reference: Any) -> int:
        said(gpu.fabric)
        return self._tell(gpu, reference, pynvml.c_nvmlGpuFabricInfo_t)

    def _tell(self, gpu: Gpu, reference: Any, structure: Any) -> int:
        info = ctypes.cast(reference, ctypes.POINTER(structure)).contents
        info.clusterUuid[:] = list(gpu.cluster.bytes)
        info.cliqueId, info.state, info.status = gpu.clique, gpu.state, gpu.status
        return int(pynvml.NVML_SUCCESS)


Install = Callable[[Driver], Driver]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def use(driver: Driver) -> Driver:
        monkeypatch.setitem(sys.modules, "pynvml", driver)
        return driver

    return use


def problems(gpu: Gpu, expected: int | None = None) -> list[str]:
    return nvml.Nvml(Driver([gpu])).gpu_problems(expected)


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        (Gpu(), []),
        (Gpu(ecc=2), ["GPU 0: 2 uncorrectable ECC errors since the driver was loaded"]),
        (Gpu(retired=1), ["GPU 0: memory pages wait to be retired, which needs a reset"]),
        (Gpu(rows=(3, 1, 0, 0)), []),  # remapped rows are a GPU that has helped itself
        (Gpu(rows=(0, 1, 1, 0)), ["GPU 0: memory rows wait to be remapped, which needs a reset"]),
        (Gpu(rows=(0, 1, 0, 1)), ["GPU 0: a memory row could not be remapped"]),
        (Gpu(action=2), ["GPU 0: NVML asks for a reboot of the node"]),
        (Gpu(action=99), ["GPU 0: NVML asks for recovery action 99"]),
        (Gpu(handle=error("GPU_IS_LOST")), ["GPU 0: GPU is lost"]),
        (Gpu(ecc=error("RESET_REQUIRED"), action=1), ["GPU 0: GPU requires restart"]),
    ],
)
def test_problems_of_a_gpu(gpu: Gpu, expected: list[str]) -> None:
    assert problems(gpu) == expected


@pytest.mark.parametrize("name", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION"])
def test_what_a_driver_does_not_support_is_skipped(name: str) -> None:
    no = error(name)
    assert problems(Gpu(ecc=no, retired=no, rows=no, action=no)) == []
    assert problems(Gpu(ecc=no, retired=no, rows=(0, 0, 0, 1), action=no)) == [
        "GPU 0: a memory row could not be remapped"
    ]


def test_every_known_recovery_action_has_words() -> None:
    known = {getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_GPU_RECOVERY_ACTION_")}
    assert known - {pynvml.NVML_GPU_RECOVERY_ACTION_NONE} == set(nvml._ACTIONS)


def test_too_few_gpus() -> None:
    two = nvml.Nvml(Driver([Gpu(), Gpu(ecc=1)]))
    assert two.gpu_problems(2) == two.gpu_problems(1) == two.gpu_problems(None)
    assert two.gpu_problems(4)[0] == "2 GPUs are here, 4 are expected"
    assert len(two.gpu_problems(4)) == 2


def test_the_fabric() -> None:
    assert nvml.Nvml(Driver([Gpu()] * 4)).fabric() == f"{CLUSTER}.7"


@pytest.mark.parametrize("name", ["FUNCTION_NOT_FOUND", "NOT_SUPPORTED"])
def test_the_fabric_of_an_older_driver(name: str) -> None:
    assert nvml.Nvml(Driver([Gpu(fabric_v=error(name))])).fabric() == f"{CLUSTER}.7"


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        ([], "NVML finds no GPU here"),
        ([Gpu(fabric_v=error("NOT_SUPPORTED"), fabric=error("NOT_SUPPORTED"))], "GPU 0 is in no NVLink fabric, or"),
        ([Gpu(state=pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED)], "GPU 0 is in no NVLink fabric, or"),
        ([Gpu(), Gpu(state=pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS)], "GPU 1 has not joined its NVLink fabric"),
        ([Gpu(status=999)], r"GPU 0 could not join its NVLink fabric \(status 999\)"),
        ([Gpu(cluster=UUID(int=0))], "no NVLink fabric beyond this node"),
        ([Gpu(), Gpu(clique=8)], rf"several fabrics: GPU 0 is in {CLUSTER}.7, GPU 1 is in {CLUSTER}.8"),
        ([Gpu(handle=error("GPU_IS_LOST"))], "NVML does not tell the GPUs' fabric: GPU is lost"),
    ],
)
def test_no_fabric(gpus: list[Gpu], reason: str) -> None:
    with pytest.raises(NoNvml, match=reason):
        nvml.Nvml(Driver(gpus)).fabric()


def test_nvml_is_closed_again(install: Install) -> None:
    driver = install(Driver([]))
    with pytest.raises(NoNvml), nvml.opened() as found:
        assert driver.open == 1
        found.fabric()
    assert driver.open == 0


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        (error("LIBRARY_NOT_FOUND"), "libnvidia-ml.so.1 is not here"),
        (error("DRIVER_NOT_LOADED"), "NVML does not start: Driver Not Loaded"),
    ],
)
def test_nvml_that_does_not_start(install: Install, init: Exception, reason: str) -> None:
    install(Driver([], init))
    with pytest.raises(NoNvml, match=reason), nvml.opened():
        pass


def test_without_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoNvml, match=r"nvidia-ml-py is not here .*: install ft-supervisor\[gpu\]"), nvml.opened():
        pass


@pytest.mark.parametrize(
    ("driver", "arguments", "code", "out", "err"),
    [
        (Driver([Gpu()]), [], 0, "", ""),
        (Driver([Gpu()]), ["--expect", "2"], 1, "1 GPUs are here, 2 are expected\n", ""),
        (Driver([Gpu()]), ["--fabric"], 0, f"{CLUSTER}.7\n", ""),
        (Driver([]), ["--fabric"], 3, "", "NVML finds no GPU here\n"),
        # no driver where GPUs are expected is a problem; no library may only be this container
        (Driver([], error("DRIVER_NOT_LOADED")), ["--expect", "1"], 1, "NVML does not start: Driver Not Loaded\n", ""),
        (Driver([], error("DRIVER_NOT_LOADED")), [], 3, "", "NVML does not start: Driver Not Loaded\n"),
    ],
)
def test_the_command(
    install: Install,
    capsys: pytest.CaptureFixture[str],
    driver: Driver,
    arguments: list[str],
    code: int,
    out: str,
    err: str,
) -> None:
    install(driver)
    assert nvml.main(arguments) == code
    assert capsys.readouterr() == (out, err)


def run(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(repository / name) for name in ("supervisor", "slurm"))
    return subprocess.run(
        [sys.executable, "-P", "-m", "ft_supervisor.daemon.nvml", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command_says_why_there_is_nothing_to_say(repository: Path) -> None:
    done = run(repository, "--fabric")
    assert (done.returncode, bool(done.stdout)) in ((0, True), (3, False))
    assert len((done.stdout + done.stderr).splitlines()) == 1


def test_the_real_driver(repository: Path) -> None:
    try:
        with nvml.opened() as real:
            found = real.gpu_problems(None)
            count = pynvml.nvmlDeviceGetCount()
    except NoNvml as reason:
        pytest.skip(f"no GPU to ask: {reason}")
    assert run(repository).stdout.splitlines() == found
    assert f"{count} GPUs are here" in run(repository, "--expect", str(count + 1)).stdout
