"""A graph of who waits for whom: ranks wait in groups, and groups wait for the ranks that are behind. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def ends(waits: Mapping[int, Sequence[str]], late: Mapping[str, Sequence[int]]) -> list[frozenset[int]]:
    """Return the sets of ranks in which the waiting ends: ranks that wait for one another, and for none outside of the
    set; a rank that waits for none is a set of its own. Only ranks for which others wait are looked at.

    `waits`: by rank the groups that it waits in; `late`: by group the ranks that it waits for. These are the strongly
    connected components without an edge out of them (Tarjan's algorithm, without recursion).
    """
    graph = _Graph(waits, late)
    for rank in sorted({rank for ranks in late.values() for rank in ranks}):
        if rank not in graph.order:
            graph.visit(rank)
    return graph.ends


class _Graph:
    """The nodes are ranks (int) and groups (str)."""

    def __init__(self, waits: Mapping[int, Sequence[str]], late: Mapping[str, Sequence[int]]) -> None:
        self._waits = waits
        self._late = late
        self.order: dict[int | str, int] = {}
        self.ends: list[frozenset[int]] = []
        self._low: dict[int | str, int] = {}
        self._stack: list[int | str] = []
        self._open: set[int | str] = set()

    def _next(self, node: int | str) -> Sequence[int | str]:
        return self._late.get(node, ()) if isinstance(node, str) else self._waits.get(node, ())

    def _enter(self, node: int | str) -> None:
        self.order[node] = self._low[node] = len(self.order)
        self._stack.append(node)
        self._open.add(node)

    def visit(self, root: int | str) -> None:
        """Find the components that can be reached from here."""
        self._enter(root)
        path = [(root, iter(self._next(root)))]
        while path:
            node, edges = path[-1]
            for other in edges:
                if other not in self.order:
                    self._enter(other)
                    path.append((other, iter(self._next(other))))
                    break
                if other in self._open:
                    self._low[node] = min(self._low[node], self.order[other])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    self._low[above] = min(self._low[above], self._low[node])
                if self._low[node] == self.order[node]:
                    self._close(node)

    def _close(self, node: int | str) -> None:
        component: set[int | str] = set()
        while node not in component:
            component.add(self._stack.pop())
        self._open -= component
        if all(other in component for one in component for other in self._next(one)):
            self.ends.append(frozenset(one for one in component if isinstance(one, int)))
