"""What NVML says of this node's GPUs: `python -m ft_supervisor.daemon.nvml [--expect N | --fabric]`.

Without --fabric: the problems of the GPUs, a line each, and exit code 1 if there are any. --fabric prints the domain
that NVLink makes of this node. Exit code 3, and the reason on stderr, where NVML cannot tell.

A call to NVML may hang on a sick GPU, in the kernel, for ever. So nothing in here is called by the daemon itself: it
runs this file as a command with a bound.

The names, fields and codes are those of NVIDIA's nvidia-ml-py, the module `pynvml`, and of nvml.h that it follows.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

PROBLEMS = 1
UNKNOWN = 3
"""Exit codes; 2 is a wrong command line's."""
_ACTIONS = {
    1: "a GPU reset",
    2: "a reboot of the node",
    3: "draining of its peer-to-peer traffic",
    4: "draining and a GPU reset",
    5: "recovery of the IMEX domain",
    6: "a bus reset",
    7: "a reboot of the system",
}
"""NVML_GPU_RECOVERY_ACTION_*; 0 is none."""


class NoNvml(Exception):
    """NVML cannot tell; `str()` is the reason in one line. `sick`: NVML is here, and should be able to."""

    def __init__(self, reason: str, *, sick: bool = False) -> None:
        self.sick = sick
        super().__init__(reason)


@contextmanager
def opened() -> Iterator[Nvml]:
    """NVML, initialised. Raises NoNvml where the module, the library or the driver is missing or does not start."""
    try:
        pynvml: Any = importlib.import_module("pynvml")
    except ImportError as error:
        raise NoNvml(f"the Python package nvidia-ml-py is not here ({error}): install ft-supervisor[gpu]") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound as error:
        raise NoNvml("libnvidia-ml.so.1 is not here: no NVIDIA driver, or none in this container") from error
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML does not start: {error}", sick=True) from error
    try:
        yield Nvml(pynvml)
    finally:
        with suppress(pynvml.NVMLError):  # the process ends anyway
            pynvml.nvmlShutdown()


class Nvml:
    """Questions to an open NVML. `pynvml` is the module."""

    def __init__(self, pynvml: Any) -> None:
        self._nvml = pynvml
        # A driver may be older than the module, or serve a virtual GPU; containers may not ask everything.
        self._unsupported: tuple[type[Exception], ...] = (
            pynvml.NVMLError_NotSupported,
            pynvml.NVMLError_FunctionNotFound,
            pynvml.NVMLError_NoPermission,
        )

    def fabric(self) -> str:
        """The NVLink domain of this node's GPUs, "<cluster UUID>.<clique>"; they can reach those of equal domains.

        Raises NoNvml where there is no GPU or no fabric beyond the node, and where the GPUs do not agree.
        """
        try:
            count = self._nvml.nvmlDeviceGetCount()
            found = {index: self._fabric(index) for index in range(count)}
        except self._nvml.NVMLError as error:
            raise NoNvml(f"NVML does not tell the GPUs' fabric: {error}", sick=True) from error
        if not found:
            raise NoNvml("NVML finds no GPU here")
        if len(set(found.values())) > 1:
            each = ", ".join(f"GPU {index} is in {domain}" for index, domain in found.items())
            raise NoNvml(f"the GPUs are in several fabrics: {each}", sick=True)
        return found[0]

    def gpu_problems(self, expected: int | None) -> list[str]:
        """What is wrong with the GPUs, one line each. `expected`: how many there have to be; None: any number."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            return [f"the GPUs cannot be counted: {error}"]
        problems = []
        if expected is not None and count < expected:
            problems.append(f"{count} GPUs are here, {expected} are expected")
        for index in range(count):
            try:
                device = self._nvml.nvmlDeviceGetHandleByIndex(index)
                found = [*self._ecc(device), *self._memory(device), *self._recovery(device)]
            except self._nvml.NVMLError as error:
                found = [str(error)]
            problems += [f"GPU {index}: {problem}" for problem in found]
        return problems

    def _ecc(self, device: Any) -> Iterator[str]:
        nvml = self._nvml
        count = self._ask(
            "nvmlDeviceGetTotalEccErrors", device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
        if count:
            yield f"{count} uncorrectable ECC errors since the driver was loaded"

    def _memory(self, device: Any) -> Iterator[str]:
        if self._ask("nvmlDeviceGetRetiredPagesPendingStatus", device) == self._nvml.NVML_FEATURE_ENABLED:
            yield "memory pages wait to be retired, which needs a reset"
        _, _, pending, failed = self._ask("nvmlDeviceGetRemappedRows", device) or (0, 0, 0, 0)
        if failed:
            yield "a memory row could not be remapped"
        if pending:
            yield "memory rows wait to be remapped, which needs a reset"

    def _recovery(self, device: Any) -> Iterator[str]:
        field = getattr(self._nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)
        values = self._ask("nvmlDeviceGetFieldValues", device, [field]) if field is not None else None
        if values and values[0].nvmlReturn == self._nvml.NVML_SUCCESS and (action := int(values[0].value.uiVal)):
            yield f"NVML asks for {_ACTIONS.get(action, f'recovery action {action}')}"

    def _ask(self, name: str, *arguments: Any) -> Any:
        """What the function returns; None where it is not supported. Raises NVMLError."""
        function = getattr(self._nvml, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._unsupported:
            return None

    def _fabric(self, index: int) -> str:
        """One GPU's. Raises NoNvml and NVMLError."""
        nvml = self._nvml
        device = nvml.nvmlDeviceGetHandleByIndex(index)
        info = self._fabric_info(device)
        if info is None or info.state == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
            raise NoNvml(f"GPU {index} is in no NVLink fabric, or its driver cannot tell")
        if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED:
            raise NoNvml(f"GPU {index} has not joined its NVLink fabric (state {info.state})", sick=True)
        if info.status != nvml.NVML_SUCCESS:
            raise NoNvml(f"GPU {index} could not join its NVLink fabric (status {info.status})", sick=True)
        cluster = uuid.UUID(bytes=bytes(info.clusterUuid))
        if not cluster.int:  # an NVSwitch inside the node
            raise NoNvml(f"GPU {index} is in no NVLink fabric beyond this node: its cluster UUID is zero")
        return f"{cluster}.{info.cliqueId}"

    def _fabric_info(self, device: Any) -> Any:
        """The newer function with its second structure, else the older one; None where there is neither."""
        for function, structure in (
            ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
            ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
        ):
            make = getattr(self._nvml, structure, None)
            if make is not None:
                info = make()
                if self._ask(function, device, ctypes.byref(info)) is not None:
                    return info
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="ft_supervisor.daemon.nvml", allow_abbrev=False)
    parser.add_argument("--expect", type=int, metavar="N", help="how many GPUs there have to be")
    parser.add_argument("--fabric", action="store_true", help="print the NVLink domain instead")
    options = parser.parse_args(arguments)
    try:
        with opened() as nvml:
            if options.fabric:
                print(nvml.fabric())
                return 0
            problems = nvml.gpu_problems(options.expect)
    except NoNvml as error:
        if error.sick and options.expect and not options.fabric:
            problems = [str(error)]  # there should be GPUs, and nobody could use them
        else:
            print(error, file=sys.stderr)
            return UNKNOWN
    for problem in problems:
        print(problem)
    return PROBLEMS if problems else 0


if __name__ == "__main__":
    sys.exit(main())
