"""The random number generators of a process: torch's (CPU, current accelerator), numpy's and Python's global ones."""

import hashlib
import random
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

NAMES = ("torch", "accelerator", "numpy", "python")


def states() -> dict[str, Any]:
    """Return the state of each generator by its name, of numbers and tensors; None for an accelerator not in use."""
    accelerator = _accelerator()
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "accelerator": accelerator.get_rng_state() if accelerator else None,
        "numpy": np.random.get_state(legacy=False),
        "python": [version, np.array(numbers), gauss],
    }


def restore(kept: dict[str, Any], names: Iterable[str]) -> None:
    """Put the named generators into the state that `states` returned."""
    for name in names:
        if name == "torch":
            torch.set_rng_state(kept[name])
        elif name == "accelerator" and kept[name] is not None and (accelerator := _accelerator()):
            accelerator.set_rng_state(kept[name])
        elif name == "numpy":
            np.random.set_state(kept[name])
        elif name == "python":
            version, numbers, gauss = kept[name]
            random.setstate((version, tuple(numbers.tolist()), gauss))


def digests() -> list[int]:
    """Return a checksum for the state of each generator, in the order of NAMES; 0 for one that is not in use."""
    kept = states()
    return [zlib.crc32(_content(kept[name])) for name in NAMES]


def _content(state: Any) -> bytes:
    if state is None:
        return b""
    if isinstance(state, torch.Tensor):
        return state.numpy().tobytes()
    if isinstance(state, np.ndarray):
        return state.tobytes()
    if isinstance(state, dict | list):
        return b"".join(map(_content, state.values() if isinstance(state, dict) else state))
    return repr(state).encode()


def seed(number: int, step: int) -> None:
    """Seed all generators with a number that follows from these two alone. Successive steps get unrelated numbers."""
    mixed = int.from_bytes(hashlib.sha256(f"{number} {step}".encode()).digest()[:8])
    torch.manual_seed(mixed)  # accelerators, too
    np.random.seed(mixed % 2**32)
    random.seed(mixed)


def _accelerator() -> Any:
    """Return torch's module for the accelerator, if this process has used it."""
    if not torch.accelerator.is_available():
        return None
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    return module if module.is_initialized() else None
