"""The exchange between the ranks at a sync, over the default process group.

Each operation is bounded by the group's timeout. With gloo the tensors stay where they are; with NCCL alone each part
is moved to the device and back, at most `PART` bytes at a time.
"""

import json
import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .snapshot import Flat, Snapshot, empty_like, raw

PART = 64 << 20  # bytes


class Refusal(IntEnum):
    """Why a rank cannot go on from the chosen commit."""

    HEADER = 1
    CONTENT = 2
    FORM = 3
    LOAD = 4

    @property
    def words(self) -> str:
        return {
            Refusal.HEADER: "the header of the state was damaged on its way",
            Refusal.CONTENT: "a tensor was damaged on its way",
            Refusal.FORM: "the model or another item has another form than in the commit",
            Refusal.LOAD: "an item could not load its state",
        }[self]


class Refused(Exception):
    """This rank cannot use the commit. `detail` is for its log; the other ranks get the code."""

    def __init__(self, code: Refusal, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Link:
    """The ranks of the default process group; a world of one if there is no group."""

    def __init__(self) -> None:
        self._grouped = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if self._grouped else 0
        self.size = dist.get_world_size() if self._grouped else 1
        self._device = _device_of_default_group() if self._grouped else torch.device("cpu")

    def gather(self, numbers: list[int]) -> list[list[int]]:
        """Return the numbers of all ranks, each as many as here."""
        if not self._grouped:
            return [numbers]
        own = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        everyone = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(everyone, own)
        return [each.tolist() for each in everyone]

    def agree(self, refusal: Refusal | None) -> tuple[int, Refusal] | None:
        """Return the lowest rank that refuses, and why; None if no rank does. All ranks get the same answer."""
        if not self._grouped:
            return (0, refusal) if refusal else None
        own = self.rank * len(Refusal) + refusal - 1 if refusal else self.size * len(Refusal)
        worst = torch.tensor(own, dtype=torch.int64, device=self._device)
        dist.all_reduce(worst, dist.ReduceOp.MIN)
        rank, code = divmod(int(worst), len(Refusal))
        return (rank, Refusal(code + 1)) if rank < self.size else None

    def send(self, snapshot: Snapshot, to: int, **more: object) -> None:
        """Send a snapshot, unless the other rank refuses its header."""
        sums = [checksum(tensor) for tensor in snapshot.tensors]
        header = snapshot.header(checksums=sums, **more)
        about = torch.tensor([len(header), zlib.crc32(header)])
        self._send(torch.tensor([*about.tolist(), checksum(about)]), to)
        if not self._welcome(to):
            return
        self._send(torch.frombuffer(bytearray(header), dtype=torch.uint8), to)
        if not self._welcome(to):
            return
        for tensor in snapshot.tensors:
            for part in raw(tensor).split(PART):
                self._send(part, to)

    def receive(self, sender: int, live: Flat) -> tuple[Snapshot, Mapping[str, Any]]:
        """Return the snapshot that `sender` sends, and its header. Raises Refused."""
        try:
            snapshot, header = self._header(sender, live)
        except Refused:
            self._send(torch.tensor([0]), sender)
            raise
        self._send(torch.tensor([1]), sender)
        damaged = []
        for tensor, path, expected in zip(snapshot.tensors, snapshot.paths, header["checksums"], strict=True):
            for part in raw(tensor).split(PART):
                self._receive(part, sender)
            if checksum(tensor) != expected:
                damaged.append(path)
        if damaged:
            raise Refused(Refusal.CONTENT, f"{damaged} from rank {sender}: the checksum is another one")
        return snapshot, header

    def _header(self, sender: int, live: Flat) -> tuple[Snapshot, dict[str, Any]]:
        about = self._receive(torch.empty(3, dtype=torch.int64), sender)
        size, expected, whole = about.tolist()
        if checksum(about[:2]) != whole:  # gloo ends a process that awaits another number of bytes than are sent
            raise Refused(Refusal.HEADER, f"the length of the header from rank {sender}: the checksum is another one")
        self._send(torch.tensor([1]), sender)
        received = self._receive(torch.empty(size, dtype=torch.uint8), sender).numpy().tobytes()
        if zlib.crc32(received) != expected:
            raise Refused(Refusal.HEADER, f"the header from rank {sender}: the checksum is another one")
        header = json.loads(received)
        snapshot = empty_like(header)
        if misfit := snapshot.misfit(live):
            raise Refused(Refusal.FORM, misfit)
        return snapshot, header

    def _welcome(self, to: int) -> bool:
        """Return whether the receiving rank asks for the next part."""
        return self._receive(torch.empty(1, dtype=torch.int64), to).tolist() == [1]

    def _send(self, tensor: Tensor, to: int) -> None:
        if tensor.numel():
            dist.send(tensor.to(self._device), to)

    def _receive(self, into: Tensor, sender: int) -> Tensor:
        if into.numel():
            arrived = into if self._device.type == "cpu" else torch.empty_like(into, device=self._device)
            dist.recv(arrived, sender)
            if arrived is not into:
                into.copy_(arrived)
        return into


def checksum(tensor: Tensor) -> int:
    """Return the CRC-32 of a CPU tensor's bytes."""
    return zlib.crc32(raw(tensor).numpy().data)


def _device_of_default_group() -> torch.device:
    """Return the CPU if the group has a backend for it, else this process's accelerator."""
    group = dist.distributed_c10d._get_default_group()
    if any(device.type == "cpu" for device in group._device_types):
        return torch.device("cpu")
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        raise RuntimeError(f"the process group has no backend for the CPU, and there is no accelerator: {group}")
    return torch.device(accelerator.type, torch.accelerator.current_device_index())
