"""A nested value of numbers, texts and tensors as a tree that JSON can hold, and a list of tensors; and back.

No pickle: bytes from the network become data, and never code.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

Tree = Any
"""None, bool, int, float, str, or a dict with one key, the kind, whose value holds further trees."""


@dataclass(frozen=True)
class Leaf:
    """One tensor of a flattened value, with its path in it."""

    path: str
    tensor: Tensor
    whole: Any = None  # the DTensor of which `tensor` is this rank's part


@dataclass
class Flat:
    """A flattened value. Its leaves are the live tensors themselves, no copies."""

    tree: Tree
    leaves: list[Leaf]

    @property
    def sharded(self) -> bool:
        return any(leaf.whole is not None for leaf in self.leaves)


def flatten(items: Mapping[str, object]) -> Flat:
    """Take the items apart. Raises TypeError, with the path, for an object of a kind that cannot be kept."""
    leaves: list[Leaf] = []
    tree = {"dict": [[name, _flatten(value, name, leaves)] for name, value in items.items()]}
    return Flat(tree, leaves)


def _flatten(value: object, path: str, leaves: list[Leaf]) -> Tree:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return _flatten_tensor(value.detach(), path, leaves)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        leaves.append(Leaf(path, torch.from_numpy(np.array(value, order="C"))))
        return {"array": len(leaves) - 1}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        pairs = [[_key(key, path), _flatten(of_key, f"{path}.{key}", leaves)] for key, of_key in value.items()]
        return {"counter" if isinstance(value, Counter) else "dict": pairs}
    if isinstance(value, list | tuple):
        parts = [_flatten(part, f"{path}.{at}", leaves) for at, part in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": parts}
    raise TypeError(f"{path} is a {type(value).__qualname__}: only numbers, texts, tensors, lists and dicts are kept")


def _key(key: object, path: str) -> Tree:
    if key is None or isinstance(key, bool | int | float | str):
        return key
    raise TypeError(f"{path} has a key that is a {type(key).__qualname__}: only numbers and texts are kept")


def _flatten_tensor(value: Tensor, path: str, leaves: list[Leaf]) -> Tree:
    if hasattr(value, "device_mesh"):  # a DTensor; this test needs no import of its module
        whole: Any = value
        leaves.append(Leaf(path, whole.to_local(), whole))
        return {"sharded": [len(leaves) - 1, leaves[-1].tensor.device.type, *_layout(whole)]}
    if value.layout is not torch.strided or value.is_quantized or value.is_meta or hasattr(value, "local_shards"):
        raise TypeError(f"{path} is a tensor that cannot be kept: {type(value).__name__}, {value.layout}")
    leaves.append(Leaf(path, value))
    return {"tensor": [len(leaves) - 1, value.device.type]}


def _layout(whole: Any) -> list[Any]:
    """Return the placements of a DTensor with its mesh's shape (each cycle has another mesh), its shape and stride."""
    return [f"{whole.placements} {tuple(whole.device_mesh.shape)}", list(whole.shape), list(whole.stride())]


@dataclass
class Snapshot:
    """A copy of a flattened value in this machine's memory: its tree, and the tensors with their paths."""

    tree: Tree
    paths: list[str]
    tensors: list[Tensor] = field(repr=False)

    def header(self, **more: object) -> bytes:
        """Return everything but the content of the tensors, and `more`, as JSON in UTF-8."""
        forms = [
            [path, list(tensor.shape), str(tensor.dtype).removeprefix("torch.")]
            for path, tensor in zip(self.paths, self.tensors, strict=True)
        ]
        return json.dumps({"tree": self.tree, "tensors": forms, **more}).encode()

    def misfit(self, live: Flat) -> str:
        """Return in words the first tensor that has another form in `live`; empty if there is none."""
        forms = {leaf.path: leaf.tensor for leaf in live.leaves}
        for path, tensor in zip(self.paths, self.tensors, strict=True):
            if (own := forms.get(path)) is not None and (own.shape, own.dtype) != (tensor.shape, tensor.dtype):
                return f"{path} is {_form(tensor)} in the commit and {_form(own)} in this process"
        kept, own_names = ([name for name, _ in tree["dict"]] for tree in (self.tree, live.tree))
        return "" if kept == own_names else f"the commit has the items {kept}, this process has {own_names}"

    def rebuild(self, live: Flat) -> dict[str, Any]:
        """Return the items. Where `live` has a tensor of the same path, this very tensor gets the content.

        So no tensor is on an accelerator twice, and a DTensor is spread over the mesh of this cycle. Raises
        ValueError for a new DTensor if no DTensor of `live` has its placements.
        """
        with torch.no_grad():
            items: dict[str, Any] = _Rebuild(self, live).value(self.tree)
        return items


def _form(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


class _Rebuild:
    def __init__(self, snapshot: Snapshot, live: Flat) -> None:
        self._snapshot = snapshot
        self._live = {leaf.path: leaf for leaf in live.leaves}
        self._spread = {_layout(leaf.whole)[0]: leaf.whole for leaf in live.leaves if leaf.whole is not None}

    def value(self, tree: Tree) -> Any:
        if not isinstance(tree, dict):
            return tree
        ((kind, inside),) = tree.items()
        match kind:
            case "dict":
                return {key: self.value(of_key) for key, of_key in inside}
            case "counter":
                return Counter(dict(inside))
            case "list":
                return [self.value(part) for part in inside]
            case "tuple":
                return tuple(self.value(part) for part in inside)
            case "array":
                return self._snapshot.tensors[inside].clone().numpy()
            case "tensor":
                return self._tensor(*inside)
            case "sharded":
                return self._sharded(*inside)
        raise ValueError(f"a commit has a part of an unknown kind: {kind}")

    def _tensor(self, index: int, device: str) -> Tensor:
        saved, own = self._snapshot.tensors[index], self._live.get(self._snapshot.paths[index])
        if own is None or own.whole is not None or own.tensor.device.type != device:
            return saved.clone() if device == "cpu" else saved.to(device)
        return own.tensor.copy_(saved)

    def _sharded(self, index: int, device: str, spread: str, shape: list[int], stride: list[int]) -> Tensor:
        own = self._live.get(self._snapshot.paths[index])
        if own is not None and own.whole is not None:
            own.tensor.copy_(self._snapshot.tensors[index])
            whole: Tensor = own.whole
            return whole
        if (alike := self._spread.get(spread)) is None:
            raise ValueError(f"{self._snapshot.paths[index]} was spread by {spread}, and no tensor here is")
        local = self._snapshot.tensors[index].clone().to(device)
        made: Tensor = type(alike).from_local(
            local, alike.device_mesh, alike.placements, run_check=False, shape=torch.Size(shape), stride=tuple(stride)
        )
        return made


def take(flat: Flat, reuse: Sequence[Tensor] = ()) -> Snapshot:
    """Copy a flattened value. The tensors of `reuse` are overwritten where they have the right form."""
    tensors: list[Tensor] = []
    elsewhere = False  # on an accelerator, whose copies are asynchronous
    for at, leaf in enumerate(flat.leaves):
        on_accelerator = leaf.tensor.device.type != "cpu"
        if at < len(reuse) and (reuse[at].shape, reuse[at].dtype) == (leaf.tensor.shape, leaf.tensor.dtype):
            into = reuse[at]
        else:
            into = torch.empty(leaf.tensor.shape, dtype=leaf.tensor.dtype, pin_memory=on_accelerator)
        tensors.append(into.copy_(leaf.tensor, non_blocking=on_accelerator))
        elsewhere = elsewhere or on_accelerator
    if elsewhere:
        torch.accelerator.synchronize()
    return Snapshot(flat.tree, [leaf.path for leaf in flat.leaves], tensors)


def empty_like(header: Mapping[str, Any]) -> Snapshot:
    """Return a snapshot with the forms of a header, whose tensors have no content yet."""
    paths, tensors = [], []
    for path, shape, dtype in header["tensors"]:
        paths.append(path)
        tensors.append(torch.empty(shape, dtype=getattr(torch, dtype)))
    return Snapshot(header["tree"], paths, tensors)


def raw(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor of a snapshot as a flat tensor of uint8 that shares its memory."""
    return tensor.view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)
