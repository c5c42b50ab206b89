r"""How many relabellings leave a directed graph as it is: exact where cheap, else an upper bound.

Pendant trees are peeled off and named by their shape, cycles are compared as words, vertices with
the same neighbours are merged, and what is left of a component is counted by orbits:
$|\mathrm{Aut}| = \prod_i |\text{orbit of } v_i|$, each orbit among those that fix
$v_1, \dots, v_{i-1}$ [attention-bounds, C1]. Colour refinement bounds each orbit from above by a
cell; a search for an automorphism decides each candidate, within a budget of steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import factorial, prod

_OUT, _IN, _BOTH = 1, 2, 3
_REVERSED = {_OUT: _IN, _IN: _OUT, _BOTH: _BOTH}
_STEPS = 1_000_000

Near = dict[int, dict[int, int]]
"""For each vertex its neighbours other than itself, and the direction of the edges to them."""
Trace = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A connected graph without twins: for each vertex its neighbours, with directions."""

    near: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def cost(self) -> int:
        return len(self.near) + sum(map(len, self.near))


@dataclass(frozen=True, slots=True)
class _Coloring:
    """The colour 0, 1, ... of each vertex, and how many vertices have each colour."""

    colors: list[int]
    sizes: list[int]

    def cell(self) -> list[int] | None:
        """The smallest cell of several vertices (the first colour among equals), or ``None``."""
        several = [(size, color) for color, size in enumerate(self.sizes) if size > 1]
        if not several:
            return None
        chosen = min(several)[1]
        return [vertex for vertex, color in enumerate(self.colors) if color == chosen]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the components that are isomorphic, or may be, and its automorphisms."""

    part: _Part
    coloring: _Coloring
    automorphisms: int


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
    near, loops = _neighbors(_sparser(items, set(edges)))
    isolated = items - len(near)
    names, alike = _peel(near, loops)
    budget, exact = _Budget(steps), True
    groups: Counter[int] = Counter()
    kinds: dict[Hashable, list[_Kind]] = defaultdict(list)
    copies: Counter[tuple[Hashable, int]] = Counter()
    cycles = []
    for component in _components(near):
        if all(len(near[vertex]) == 2 for vertex in component):
            cycles.append(_around(component[0], near, names))
            continue
        part, marks = _without_twins(component, near, names)
        alike.update(abs(twins) for _, twins in marks)
        coloring, trace = _start(part, marks)
        key, own = (tuple(sorted(marks)), trace), 0
        index = len(kinds[key])
        for place, kind in enumerate(kinds[key]):
            same = _isomorphic(kind.part, kind.coloring, part, coloring, budget)
            exact = exact and same is not None
            if same is not False:  # undecided counts as isomorphic: more automorphisms
                index, own = place, kind.automorphisms if same else 0
                break
        if not own:
            own, certain = _orbit_product(part, coloring, budget)
            exact = exact and certain
        if index == len(kinds[key]):
            kinds[key].append(_Kind(part, coloring, own))
        copies[key, index] += 1
        groups[own] += 1
    alike.update(copies.values())
    groups.update(_cycle_groups(cycles, alike))
    total = prod(factorial(size) ** count for size, count in alike.items())
    return isolated, total * prod(order**count for order, count in groups.items()), exact


def _sparser(items: int, edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The graph or its complement: both have the same automorphisms."""
    if 2 * len(edges) <= items**2:
        return edges
    return {(i, j) for i in range(items) for j in range(items)} - edges


def _neighbors(edges: Iterable[tuple[int, int]]) -> tuple[Near, set[int]]:
    """The vertices that have edges, with their neighbours, and those with loops."""
    near: Near = {}
    loops = set()
    for source, target in edges:
        after, before = near.setdefault(source, {}), near.setdefault(target, {})
        if source == target:
            loops.add(source)
        else:
            after[target] = after.get(target, 0) | _OUT
            before[source] = before.get(source, 0) | _IN
    return near, loops


def _peel(near: Near, loops: set[int]) -> tuple[dict[int, int], Counter[int]]:
    """Take off leaves, layer by layer; a tree comes down to its centre, one vertex or two.

    Returns the name of each vertex (what hung on it: equal names, isomorphic trees with the vertex as
    root), and how often each number of equal trees hung on one vertex, or stood alone. Leaves the
    vertices that are left in ``near``.
    """
    shapes: dict[Hashable, int] = {}
    hanging: dict[int, list[tuple[int, int]]] = defaultdict(list)
    names: dict[int, int] = {}
    alike: Counter[int] = Counter()
    trees: Counter[Hashable] = Counter()

    def name(vertex: int) -> int:
        trees_below = sorted(hanging.pop(vertex, ()))
        if trees_below:
            alike.update(Counter(trees_below).values())
        return shapes.setdefault((vertex in loops, *trees_below), len(shapes))

    layer = [vertex for vertex, around in near.items() if len(around) < 2]
    while layer:
        for vertex in layer:
            names[vertex] = name(vertex)
        following = []
        for vertex in layer:
            if vertex not in near:
                continue
            around, own = near.pop(vertex), names[vertex]
            if not around:
                trees[own] += 1
                continue
            ((other, code),) = around.items()
            del near[other][vertex]
            if other in names:  # both are leaves: the two ends of the middle edge
                near.pop(other)
                ends, swapped = (own, code, names[other]), (names[other], _REVERSED[code], own)
                trees[min(ends, swapped)] += 1
                alike[2] += ends == swapped
                continue
            hanging[other].append((own, code))
            if len(near[other]) == 1:
                following.append(other)
        layer = following
    for vertex in near:
        names[vertex] = name(vertex)
    alike.update(trees.values())
    return names, alike


def _components(near: Near) -> list[list[int]]:
    seen: set[int] = set()
    components = []
    for start in sorted(near):
        if start in seen:
            continue
        seen.add(start)
        component = [start]
        for vertex in component:  # grows while it is read
            fresh = [other for other in near[vertex] if other not in seen]
            seen.update(fresh)
            component += fresh
        components.append(component)
    return components


def _around(start: int, near: Near, names: dict[int, int]) -> list[tuple[int, int]]:
    """A cycle from a vertex on: the name of each vertex, and the direction to the next one."""
    word = []
    before, vertex = start, next(iter(near[start]))
    while True:
        word.append((names[before], near[before][vertex]))
        if vertex == start:
            return word
        before, vertex = vertex, next(other for other in near[vertex] if other != before)


def _cycle_groups(cycles: list[list[tuple[int, int]]], alike: Counter[int]) -> Counter[int]:
    """How many cycles have so many automorphisms; numbers of equal ones are added to ``alike``.

    A word of length n and least period p is kept by n / p rotations, and by as many reflections if
    it is a rotation of what is read backwards. Words are texts: they are found in one another.
    """
    symbols: dict[tuple[int, int], str] = {}
    kinds: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    groups: Counter[int] = Counter()
    for steps in cycles:
        names, codes = zip(*steps, strict=True)
        turned = [_REVERSED[code] for code in (*codes[-2::-1], codes[-1])]
        backwards = list(zip(names[::-1], turned, strict=True))
        word, reverse = (
            "".join([symbols.setdefault(step, chr(len(symbols))) for step in way])
            for way in (steps, backwards)
        )
        groups[len(word) // (2 * word).find(word, 1) * (1 + (reverse in 2 * word))] += 1
        known = kinds[min((*sorted(word),), (*sorted(reverse),))]
        same = (model for model in known if word in 2 * model or reverse in 2 * model)
        known[next(same, word)] += 1
    for known in kinds.values():
        alike.update(known.values())
    return groups


def _without_twins(
    component: list[int], near: Near, names: dict[int, int]
) -> tuple[_Part, list[tuple[int, int]]]:
    """The component with one vertex for each class of twins; its name and number of twins.

    Twins have the same neighbours, themselves left out or (joined both ways: a negative number)
    included. No vertex has twins of both sorts.
    """
    classes: dict[tuple[int, frozenset[tuple[int, int]]], list[int]] = defaultdict(list)
    for vertex in component:
        around = frozenset(near[vertex].items())
        classes[names[vertex], around].append(vertex)
        classes[names[vertex], around | {(vertex, _BOTH)}].append(vertex)
    several = [(members, around) for (_, around), members in classes.items() if len(members) > 1]
    twins = {}
    for members, around in several:
        joined = (members[0], _BOTH) in around
        for vertex in members:
            twins[vertex] = (members[0], -len(members) if joined else len(members))
    kept = [vertex for vertex in component if twins.get(vertex, (vertex, 1))[0] == vertex]
    number = {vertex: index for index, vertex in enumerate(kept)}
    part = _Part(
        tuple(
            tuple((number[other], code) for other, code in near[vertex].items() if other in number)
            for vertex in kept
        )
    )
    return part, [(names[vertex], twins.get(vertex, (vertex, 1))[1]) for vertex in kept]


def _start(part: _Part, marks: list[tuple[int, int]]) -> tuple[_Coloring, Trace]:
    """The coarsest equitable colouring that tells marks apart; the rank of a mark is its name."""
    ranks = {mark: rank for rank, mark in enumerate(sorted(set(marks)))}
    colors = [ranks[mark] for mark in marks]
    coloring = _Coloring(colors, [count for _, count in sorted(Counter(colors).items())])
    return coloring, _refine(part, coloring, list(range(len(colors))))


def _refine(part: _Part, coloring: _Coloring, changed: list[int]) -> Trace:
    """Split cells until equitable, given that only ``changed`` vertices have new colours.

    Vertices of one cell part when different numbers of their neighbours changed to some colour in
    some direction. The names of new colours depend on no labelling; the trace records all splits.
    """
    colors, sizes = coloring.colors, coloring.sizes
    trace: list[Hashable] = []
    while changed:
        seen: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for vertex in changed:
            for other, code in part.near[vertex]:
                seen[other].append((colors[vertex], code))
        groups: dict[tuple[int, tuple[tuple[int, int], ...]], list[int]] = defaultdict(list)
        for vertex, marks in seen.items():
            groups[colors[vertex], tuple(sorted(marks))].append(vertex)
        changed = []
        for signature, members in sorted(groups.items()):
            trace.append((signature, len(members)))
            cell = signature[0]
            if len(members) < sizes[cell]:
                for vertex in members:
                    colors[vertex] = len(sizes)
                sizes[cell] -= len(members)
                sizes.append(len(members))
                changed += members
    return tuple(trace)


def _singled_out(part: _Part, coloring: _Coloring, vertex: int) -> tuple[_Coloring, Trace]:
    """The refinement that gives one vertex of a larger cell a colour of its own."""
    colors, sizes = coloring.colors.copy(), coloring.sizes.copy()
    sizes[colors[vertex]] -= 1
    colors[vertex] = len(sizes)
    sizes.append(1)
    finer = _Coloring(colors, sizes)
    return finer, _refine(part, finer, [vertex])


def _isomorphic(
    left: _Part, left_coloring: _Coloring, right: _Part, right_coloring: _Coloring, budget: _Budget
) -> bool | None:
    """Whether an isomorphism matches two refined colourings; ``None`` when the budget ends."""
    if not budget.spend(left.cost):
        return None
    cell = left_coloring.cell()
    if cell is None:
        place = {color: vertex for vertex, color in enumerate(right_coloring.colors)}
        image = [place[color] for color in left_coloring.colors]
        return all(
            {(image[other], code) for other, code in around} == set(right.near[image[vertex]])
            for vertex, around in enumerate(left.near)
        )
    chosen, trace = _singled_out(left, left_coloring, cell[0])
    undecided = False
    for vertex, color in enumerate(right_coloring.colors):
        if color != left_coloring.colors[cell[0]]:
            continue
        if not budget.spend(right.cost):
            return None
        other, other_trace = _singled_out(right, right_coloring, vertex)
        if trace != other_trace:
            continue
        found = _isomorphic(left, chosen, right, other, budget)
        if found:
            return True
        undecided = undecided or found is None
    return None if undecided else False


def _orbit_product(part: _Part, coloring: _Coloring, budget: _Budget) -> tuple[int, bool]:
    """The automorphisms of one part that keep its colours, or an upper bound."""
    total, exact, reserve = 1, True, _Budget(_STEPS)
    while (cell := coloring.cell()) is not None:
        searched = budget.spend(part.cost * len(cell))
        if not searched and not reserve.spend(part.cost):
            # what is left permutes vertices within the cells
            return total * prod(map(factorial, coloring.sizes)), False
        chosen, trace = _singled_out(part, coloring, cell[0])
        exact, orbit = exact and searched, 1 if searched else len(cell)  # an orbit lies in a cell
        for vertex in cell[1:] if searched else ():
            other, other_trace = _singled_out(part, coloring, vertex)
            if trace != other_trace:
                continue
            same = _isomorphic(part, chosen, part, other, budget)
            exact = exact and same is not None
            orbit += same is not False
        total *= orbit
        coloring = chosen
    return total, exact
