r"""How many relabellings leave a directed graph as it is: exact where cheap, else an upper bound.

Components are counted apart, vertices with the same in- and out-neighbours are merged, and the
rest is counted by orbits: $|\mathrm{Aut}| = \prod_i |\text{orbit of } v_i|$, each orbit among those that fix
$v_1, \dots, v_{i-1}$ [attention-bounds, C1]. Colour refinement bounds each orbit from above by a
cell; a search for an automorphism decides each candidate, within a budget of steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import factorial, prod

Trace = tuple[object, ...]

_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Part:
    """A connected graph without twins: neighbours of each vertex, and how many twins it stands for."""

    successors: tuple[tuple[int, ...], ...]
    predecessors: tuple[tuple[int, ...], ...]
    weights: tuple[int, ...]

    @property
    def cost(self) -> int:
        return len(self.weights) + 2 * sum(map(len, self.successors))


@dataclass(slots=True)
class _Budget:
    steps: int

    def spend(self, steps: int) -> bool:
        self.steps -= steps
        return self.steps >= 0


def automorphism_count(
    items: int, edges: Iterable[tuple[int, int]], *, steps: int = _STEPS
) -> tuple[int, bool]:
    r"""$|\mathrm{Aut}|$ of a directed graph on ``items`` vertices, and whether it is exact.

    ``edges``: pairs in range, repeated ones counted once. When ``steps`` run out the number is an
    upper bound, and the second value is ``False``.

    >>> automorphism_count(5, [(0, 1), (1, 2), (2, 0)])
    (6, True)
    """
    isolated, others, exact = automorphism_parts(items, edges, steps=steps)
    return factorial(isolated) * others, exact


def automorphism_parts(
    items: int, edges: Iterable[tuple[int, int]], *, steps: int = _STEPS
) -> tuple[int, int, bool]:
    r"""The same as $|\mathrm{Aut}| = n!\,a$: $n$ isolated vertices (of the graph or its complement), $a$."""
    successors: dict[int, set[int]] = defaultdict(set)
    predecessors: dict[int, set[int]] = defaultdict(set)
    for source, target in _sparser(items, set(edges)):
        successors[source].add(target)
        predecessors[target].add(source)
    touched = successors.keys() | predecessors.keys()
    if len(touched) == len(successors) == len(predecessors) and all(
        len(near) == 1 for table in (successors, predecessors) for near in table.values()
    ):
        return items - len(touched), _cycles_count(successors), True
    budget, exact, total = _Budget(steps), True, 1
    kinds: dict[Trace, list[tuple[_Part, tuple[int, ...]]]] = defaultdict(list)
    copies: Counter[tuple[Trace, int]] = Counter()
    for component in _components(successors, predecessors):
        part, twins = _without_twins(component, successors, predecessors)
        total *= twins
        start, trace = _refine(part, part.weights)
        kind = len(kinds[trace])
        for index, (model, colors) in enumerate(kinds[trace]):
            same = _isomorphic(model, colors, part, start, budget)
            exact = exact and same is not None
            if same is not False:  # undecided counts as isomorphic: more automorphisms
                kind = index
                break
        if kind == len(kinds[trace]):
            kinds[trace].append((part, start))
        copies[trace, kind] += 1
        own, certain = _orbit_product(part, start, budget)
        total, exact = total * own, exact and certain
    total *= prod(factorial(count) for count in copies.values())
    return items - len(touched), total, exact


def _sparser(items: int, edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The graph or its complement: both have the same automorphisms."""
    if 2 * len(edges) <= items**2:
        return edges
    return {(i, j) for i in range(items) for j in range(items)} - edges


def _cycles_count(successors: dict[int, set[int]]) -> int:
    """The automorphisms of disjoint cycles: rotations of each, permutations of equal ones."""
    lengths: Counter[int] = Counter()
    left = set(successors)
    while left:
        start = left.pop()
        (vertex,) = successors[start]
        length = 1
        while vertex != start:
            left.remove(vertex)
            (vertex,) = successors[vertex]
            length += 1
        lengths[length] += 1
    return prod(length**count * factorial(count) for length, count in lengths.items())


def _components(
    successors: dict[int, set[int]], predecessors: dict[int, set[int]]
) -> list[list[int]]:
    seen: set[int] = set()
    components = []
    for start in sorted(successors.keys() | predecessors.keys()):
        if start in seen:
            continue
        seen.add(start)
        component = [start]
        for vertex in component:  # grows while it is read
            for near in (*successors.get(vertex, ()), *predecessors.get(vertex, ())):
                if near not in seen:
                    seen.add(near)
                    component.append(near)
        components.append(component)
    return components


def _without_twins(
    component: list[int], successors: dict[int, set[int]], predecessors: dict[int, set[int]]
) -> tuple[_Part, int]:
    """The component with one vertex for each class of twins, and the permutations of twins."""
    classes: dict[tuple[frozenset[int], frozenset[int]], list[int]] = defaultdict(list)
    for vertex in component:
        near = (frozenset(successors.get(vertex, ())), frozenset(predecessors.get(vertex, ())))
        classes[near].append(vertex)
    number = {members[0]: index for index, members in enumerate(classes.values())}

    def kept(near: frozenset[int]) -> tuple[int, ...]:
        return tuple(number[vertex] for vertex in near if vertex in number)

    part = _Part(
        tuple(kept(after) for after, _ in classes),
        tuple(kept(before) for _, before in classes),
        tuple(len(members) for members in classes.values()),
    )
    return part, prod(factorial(weight) for weight in part.weights)


def _refine(part: _Part, colors: Sequence[int]) -> tuple[tuple[int, ...], Trace]:
    """The coarsest equitable refinement of a colouring, with names that no labelling changes."""
    current, count, trace = tuple(colors), 0, []
    while True:
        signatures = [
            (
                current[vertex],
                tuple(sorted(current[near] for near in part.successors[vertex])),
                tuple(sorted(current[near] for near in part.predecessors[vertex])),
            )
            for vertex in range(len(current))
        ]
        sizes = sorted(Counter(signatures).items())
        trace.append(tuple(sizes))
        names = {signature: name for name, (signature, _) in enumerate(sizes)}
        current = tuple(names[signature] for signature in signatures)
        if len(sizes) == count:
            return current, tuple(trace)
        count = len(sizes)


def _cell(colors: Sequence[int]) -> tuple[int, ...] | None:
    """The smallest cell of several vertices (the first name among equals), or ``None``."""
    cells: dict[int, list[int]] = defaultdict(list)
    for vertex, color in enumerate(colors):
        cells[color].append(vertex)
    several = [(len(cell), color) for color, cell in cells.items() if len(cell) > 1]
    return tuple(cells[min(several)[1]]) if several else None


def _singled_out(part: _Part, colors: Sequence[int], vertex: int) -> tuple[tuple[int, ...], Trace]:
    return _refine(part, [2 * color + (own == vertex) for own, color in enumerate(colors)])


def _isomorphic(
    left: _Part, left_colors: Sequence[int], right: _Part, right_colors: Sequence[int],
    budget: _Budget,
) -> bool | None:  # fmt: skip
    """Whether an isomorphism matches two refined colourings; ``None`` when the budget ends."""
    if not budget.spend(left.cost):
        return None
    cell = _cell(left_colors)
    if cell is None:
        place = {color: vertex for vertex, color in enumerate(right_colors)}
        image = [place[color] for color in left_colors]
        return all(
            {image[near] for near in left.successors[vertex]}
            == set(right.successors[image[vertex]])
            for vertex in range(len(image))
        )
    chosen, trace = _singled_out(left, left_colors, cell[0])
    undecided = False
    for vertex, color in enumerate(right_colors):
        if color != left_colors[cell[0]]:
            continue
        if not budget.spend(right.cost):
            return None
        other, other_trace = _singled_out(right, right_colors, vertex)
        if trace != other_trace:
            continue
        found = _isomorphic(left, chosen, right, other, budget)
        if found:
            return True
        undecided = undecided or found is None
    return None if undecided else False


def _orbit_product(part: _Part, colors: tuple[int, ...], budget: _Budget) -> tuple[int, bool]:
    """The automorphisms of one part that keep its colours, or an upper bound."""
    total, exact, reserve = 1, True, _Budget(_STEPS)
    while (cell := _cell(colors)) is not None:
        searched = budget.spend(part.cost * len(cell))
        if not searched and not reserve.spend(part.cost):
            # what is left permutes vertices within the cells
            return total * prod(factorial(size) for size in Counter(colors).values()), False
        chosen, trace = _singled_out(part, colors, cell[0])
        exact, orbit = exact and searched, 1 if searched else len(cell)  # an orbit lies in a cell
        for vertex in cell[1:] if searched else ():
            other, other_trace = _singled_out(part, colors, vertex)
            if trace != other_trace:
                continue
            same = _isomorphic(part, chosen, part, other, budget)
            exact = exact and same is not None
            orbit += same is not False
        total *= orbit
        colors = chosen
    return total, exact
