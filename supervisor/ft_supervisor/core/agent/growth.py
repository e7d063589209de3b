"""Decides whether a worker that goes on in its process has grown too much for that: something in it keeps what belongs
to former cycles, such as process groups, and each cycle adds to it."""

from __future__ import annotations

from dataclasses import dataclass

from ft_supervisor.core import words

_FULL = 2
"""After so many cycles a process has all that it keeps for good; its first one may have ended at an early step."""


@dataclass(frozen=True)
class Usage:
    """What a process uses between two cycles. `memory`: MiB that are resident, and no file's; `gpu_memory`: MiB of its
    tensors on the GPU; `threads`: all of them, those of C++ libraries too."""

    memory: int
    gpu_memory: int
    threads: int


class Growth:
    """One process, from cycle to cycle."""

    def __init__(self, most: int) -> None:
        """`most`: bytes that it may grow by after its second cycle, in the node's memory and on the GPU together."""
        self._most = most
        self._cycles = 0
        self._full = Usage(0, 0, 0)

    def after_cycle(self, usage: Usage) -> str:
        """Note what it uses once it has left a cycle. Return by how much it has grown, for people, if that is too much;
        else ""."""
        self._cycles += 1
        if self._cycles <= _FULL:
            self._full = usage
            return ""
        memory, on_gpu = usage.memory - self._full.memory, usage.gpu_memory - self._full.gpu_memory
        if (memory + on_gpu) << 20 <= self._most:
            return ""
        threads, cycles = usage.threads - self._full.threads, self._cycles - _FULL
        return f"{memory:+} MiB, {on_gpu:+} MiB on the GPU, {threads:+} threads in {words.count(cycles, 'cycle')}"
