"""Automorphism counts: all permutations, an independent matcher, and groups of published order."""

import random
from collections import Counter
from itertools import combinations, permutations, product
from math import factorial

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds.automorphisms import (
    _Budget,
    _Coloring,
    _isomorphic,
    _Part,
    automorphism_count,
    automorphism_parts,
)
from bounds.graph_families import graph_family


def _both_ways(graph):
    graph = nx.convert_node_labels_to_integers(graph)
    return len(graph), [edge for a, b in graph.edges for edge in ((a, b), (b, a))]


def _by_permutations(items, edges):
    wanted = set(edges)
    return sum(all((s[i], s[j]) in wanted for i, j in wanted) for s in permutations(range(items)))


def _by_matcher(items, edges):
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(items))
    return sum(1 for _ in nx.isomorphism.DiGraphMatcher(graph, graph).isomorphisms_iter())


def _shuffled(items, edges, draw):
    names = draw.sample(range(items), items)
    return [(names[i], names[j]) for i, j in draw.sample(edges, len(edges))]


def _union(*graphs):
    """Disjoint graphs on ranges of items, one after the other."""
    edges, start = [], 0
    for items, own in graphs:
        edges += [(i + start, j + start) for i, j in own]
        start += items
    return start, edges


def _circulant(items, steps):
    return items, [(i, (i + step) % items) for i in range(items) for step in steps]


def _paley(q):
    """An edge for each difference that is a square: a tournament for q = 3 mod 4, else a graph."""
    return _circulant(q, sorted({x * x % q for x in range(1, q)}))


def _kneser(n, k):
    sets = list(combinations(range(n), k))
    pairs = [(i, j) for i, a in enumerate(sets) for j, b in enumerate(sets) if not set(a) & set(b)]
    return len(sets), pairs


def _cayley(generators):
    """The Cayley digraph of the permutation group that the generators make."""
    elements = [tuple(range(len(generators[0])))]
    for element in elements:
        for step in generators:
            after = tuple(element[i] for i in step)
            if after not in elements:
                elements.append(after)
    place = {element: index for index, element in enumerate(elements)}
    edges = {(place[e], place[tuple(e[i] for i in step)]) for e in elements for step in generators}
    return len(elements), sorted(edges)


def _torus(steps):
    """The Cayley graph of Z4 x Z4."""
    return 16, [
        (4 * a + b, 4 * ((a + x) % 4) + (b + y) % 4)
        for a, b in product(range(4), repeat=2)
        for x, y in steps
    ]


ROOK = _torus([(0, 1), (0, 2), (0, 3), (1, 0), (2, 0), (3, 0)])
SHRIKHANDE = _torus([(0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3)])
PETERSEN = _both_ways(nx.petersen_graph())

HOUSE = _both_ways(nx.house_graph())
LEAVES = [("x", "y"), ("x", "x1"), ("y", "y1"), ("y", "y2")]
SQUARE = [("x", "u"), ("x", "v"), ("y", "u"), ("y", "v")]
TWINS = [nx.Graph(LEAVES + SQUARE), nx.Graph([*LEAVES, *SQUARE, ("u", "v")])]

# vertex-transitive and without twins or pendant trees: only the search of orbits decides
KNOWN = [
    ("Petersen", PETERSEN, 120),
    ("Kneser 6 2", _kneser(6, 2), factorial(6)),
    ("Kneser 7 3", _kneser(7, 3), factorial(7)),
    ("rook 4x4", ROOK, 2 * 24 * 24),
    ("Shrikhande", SHRIKHANDE, 192),
    ("Paley tournament 7", _paley(7), 7 * 3),
    ("Paley tournament 11", _paley(11), 11 * 5),
    ("Paley tournament 19", _paley(19), 19 * 9),
    ("Paley graph 13", _paley(13), 13 * 6),
    ("Paley graph 17", _paley(17), 17 * 8),
    ("hypercube 4", _both_ways(nx.hypercube_graph(4)), 2**4 * 24),
    ("Heawood", _both_ways(nx.heawood_graph()), 336),
    ("Pappus", _both_ways(nx.pappus_graph()), 216),
    ("Desargues", _both_ways(nx.desargues_graph()), 240),
    ("Moebius-Kantor", _both_ways(nx.moebius_kantor_graph()), 96),
    ("dodecahedron", _both_ways(nx.dodecahedral_graph()), 120),
    ("icosahedron", _both_ways(nx.icosahedral_graph()), 120),
    ("Tutte-Coxeter", _both_ways(nx.LCF_graph(30, [-13, -9, 7, -7, 9, 13], 5)), 1440),
    ("cubical", _both_ways(nx.cubical_graph()), 48),
    ("Frucht", _both_ways(nx.frucht_graph()), 1),
]


@pytest.mark.parametrize(
    ("graph", "own"), [row[1:] for row in KNOWN], ids=[row[0] for row in KNOWN]
)
def test_groups_of_published_order(graph, own):
    items, edges = graph
    for seed in range(2):
        assert automorphism_count(items, _shuffled(items, edges, random.Random(seed))) == (
            own,
            True,
        )
    rest = sorted({(i, j) for i in range(items) for j in range(items)} - set(edges))
    assert automorphism_count(items, rest) == (own, True)


@pytest.mark.parametrize(
    ("graph", "own"),
    [(_union(PETERSEN, PETERSEN), 120**2 * 2), (_union(ROOK, SHRIKHANDE), 1152 * 192),
     (_union(SHRIKHANDE, ROOK, SHRIKHANDE), 192**2 * 2 * 1152),
     (_union(_both_ways(nx.cubical_graph()), _both_ways(nx.circulant_graph(8, [1, 4]))), 48 * 16),
     (_union(_paley(7), _paley(7), _paley(7)), 21**3 * 6),
     (_union(*[_both_ways(nx.complete_graph(5))] * 4), factorial(5) ** 4 * 24),
     (_union(*[_both_ways(nx.complete_bipartite_graph(2, 3))] * 3), (2 * 6) ** 3 * 6),
     (_both_ways(nx.complete_graph(40)), factorial(40)),
     (_both_ways(nx.complete_bipartite_graph(20, 30)), factorial(20) * factorial(30)),
     (_both_ways(nx.complete_multipartite_graph(2, 2, 3)), 2 * 2 * 2 * 6),
     (_union(*map(_both_ways, TWINS)), 2**4), (_union(*map(_both_ways, TWINS * 2)), 2**8 * 2 * 2)],
)  # fmt: skip
def test_unions_and_twins(graph, own):
    items, edges = graph
    for seed in range(2):
        assert automorphism_count(items, _shuffled(items, edges, random.Random(seed))) == (
            own,
            True,
        )


@pytest.mark.parametrize(
    "graph",
    [_circulant(9, [1, 2]), _circulant(10, [1, 3]), _circulant(8, [1, 2, 5]), _circulant(10, [1, 4, 6]),
     _circulant(9, [1, 4, 7]), _circulant(7, [1, 3]), _cayley([(1, 2, 0), (1, 0, 2)]),
     _cayley([(1, 0, 2), (0, 2, 1)]), _cayley([(1, 2, 3, 0), (3, 2, 1, 0)]),
     _cayley([(1, 0, 3, 2, 4), (0, 1, 2, 3, 4)[::-1]]), _union(_circulant(5, [1, 2]), _circulant(5, [1, 3])),
     _union(_circulant(5, [1, 2]), _circulant(5, [2, 1]))],
)  # fmt: skip
def test_cayley_digraphs_by_an_independent_matcher(graph):
    items, edges = graph
    own = _by_matcher(items, edges)
    assert own % items == 0 or items == 10  # the group acts on itself
    assert automorphism_count(items, edges) == (own, True)


def test_circulant_digraphs_with_loops_by_all_permutations():
    """Every circulant digraph on five vertices, and some on seven."""
    for size in range(6):
        for steps in combinations(range(5), size):
            items, edges = _circulant(5, steps)
            assert automorphism_count(items, edges) == (_by_permutations(items, edges), True)
    for steps in ((1, 2), (1, 2, 4), (0, 1, 3, 6), (1, 6)):
        items, edges = _circulant(7, steps)
        assert automorphism_count(items, edges) == (_by_permutations(items, edges), True)


@given(st.integers(1, 9), st.integers(0, 3), st.integers(1, 3), st.integers(0, 10**9))
def test_random_graphs_by_an_independent_matcher(items, density, copies, seed):
    """Sparse ones (trees, cycles, trees on cycles), denser ones, several copies, under new names."""
    draw = random.Random(seed)
    copies = min(copies, 9 // items)
    count = [items - 1, items, items + 2, items**2 // 3][density]
    edges = [(draw.randrange(items), draw.randrange(items)) for _ in range(count)]
    if draw.random() < 0.3:
        edges += [(j, i) for i, j in edges]
    whole, together = _union(*[(items, sorted(set(edges)))] * copies)
    whole, together = (whole, together) if copies else (items, sorted(set(edges)))
    assert automorphism_count(whole, _shuffled(whole, together, draw)) == (
        _by_matcher(whole, together),
        True,
    )


@given(st.integers(2, 10), st.integers(0, 10**9))
def test_trees_with_directions_by_an_independent_matcher(items, seed):
    draw = random.Random(seed)
    edges = []
    for child in range(1, items):
        parent = draw.randrange(max(0, child - 3), child)
        edges += [[(parent, child)], [(child, parent)], [(parent, child), (child, parent)]][
            draw.choice((0, 0, 0, 1, 2))
        ]
    edges += [(v, v) for v in range(items) if draw.random() < 0.1]
    if items < 10:
        expected = _by_matcher(items, edges)
        assert automorphism_count(items, _shuffled(items, edges, draw)) == (expected, True)


@pytest.mark.parametrize(
    ("graph", "own"),
    [(_both_ways(nx.balanced_tree(2, 4)), 2**15), (_both_ways(nx.balanced_tree(3, 3)), 6**13),
     ((31, list(nx.balanced_tree(2, 4, create_using=nx.DiGraph).edges)), 2**15),
     (_both_ways(nx.star_graph(50)), factorial(50)), (_both_ways(nx.path_graph(30)), 2),
     (_both_ways(nx.path_graph(31)), 2), ((30, [(i, i + 1) for i in range(29)]), 1),
     ((4, [(0, 1), (1, 2), (2, 1), (3, 2)]), 2), ((4, [(0, 1), (1, 2), (2, 1), (2, 3)]), 1),
     ((6, [(0, 2), (1, 2), (2, 3), (3, 4), (3, 5)]), 4), (_both_ways(nx.full_rary_tree(2, 6)), 2)],
)  # fmt: skip
def test_trees_of_known_symmetry(graph, own):
    items, edges = graph
    assert automorphism_count(items, edges) == (own, True)
    doubled = _union(graph, graph)
    assert automorphism_count(*doubled) == (own**2 * 2, True)


def test_a_spider_with_many_legs():
    legs = 150
    spider = [(0, 1 + i) for i in range(legs)] + [(1 + i, 1 + legs + i) for i in range(legs)]
    assert automorphism_count(2 * legs + 1, spider) == (factorial(legs), True)
    assert automorphism_count(2 * legs + 1, spider, steps=0) == (factorial(legs), True)


def _necklace(pattern, both):
    """A cycle with as many leaves on each vertex as the pattern says."""
    size = len(pattern)
    edges = [(i, (i + 1) % size) for i in range(size)]
    edges += [(j, i) for i, j in edges] if both else []
    leaf = size
    for vertex, leaves in enumerate(pattern):
        edges += [(leaf + i, vertex) for i in range(leaves)]
        leaf += leaves
    return leaf, edges


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    ("pattern", "turns", "mirrors"),
    [("000", 3, True), ("001", 1, True), ("0101", 2, True), ("012012", 2, False), ("0110", 1, True),
     ("001001001", 3, True), ("0011010011", 1, False), ("0" * 97, 97, True), ("0102" * 8, 8, True)],
)  # fmt: skip
def test_necklaces(pattern, turns, mirrors, both):
    leaves = [int(bead) for bead in pattern]
    mirrors = any((pattern * 2)[i : i + len(pattern)] == pattern[::-1] for i in range(len(pattern)))
    own = turns * (2 if both and mirrors else 1)
    for count in leaves:
        own *= factorial(count)
    items, edges = _necklace(leaves, both)
    assert automorphism_count(items, edges) == (own, True)
    turned = _necklace([*leaves[2:], *leaves[:2]][:: -1 if both else 1], both)
    assert automorphism_count(*_union((items, edges), turned)) == (own**2 * 2, True)
    other = _necklace([*leaves[:-1], 3], both)  # of another kind
    apart = automorphism_count(*_union((items, edges), other))[0]
    assert apart == own * automorphism_count(*other)[0]


def test_a_cycle_is_not_taken_for_its_reverse():
    """Codes and pendant trees that differ only in direction."""
    one_way = [(0, 1), (1, 2), (2, 0), (2, 1)]
    other_way = [(0, 1), (1, 2), (2, 0), (0, 2)]
    for edges in (
        one_way,
        [(i, j) for i, j in one_way if (i, j) != (2, 1)] + [(3, 0), (4, 3), (5, 1)],
    ):
        items = 1 + max(map(max, edges))
        backwards = [(j, i) for i, j in edges]
        for pair in (
            _union((items, edges), (items, backwards)),
            _union((items, edges), (3, other_way)),
        ):
            if pair[0] <= 9:
                assert automorphism_count(*pair) == (_by_matcher(*pair), True)
    beads, back = _necklace([0, 1, 2], True), _necklace([2, 1, 0], True)
    assert automorphism_count(*_union(beads, back))[0] == 2 * 2 * 2
    beads, back = _necklace([0, 1, 2], False), _necklace([2, 1, 0], False)
    assert automorphism_count(*_union(beads, back))[0] == 2 * 2


def test_permutations_are_counted_by_their_cycles():
    cycles = [(i, (i + 1) % 5000) for i in range(5000)]
    assert automorphism_count(5000, cycles) == (5000, True)
    assert automorphism_count(300, [(i, i) for i in range(300)]) == (factorial(300), True)
    swaps = [(i, i ^ 1) for i in range(400)]
    assert automorphism_count(400, swaps) == (2**200 * factorial(200), True)
    draw = random.Random(0)
    image = draw.sample(range(500), 500)
    lengths, left = Counter(), set(range(500))
    while left:
        start = vertex = left.pop()
        length = 1
        while (vertex := image[vertex]) != start:
            left.remove(vertex)
            length += 1
        lengths[length] += 1
    expected = 1
    for length, count in lengths.items():
        expected *= length**count * factorial(count)
    assert automorphism_count(500, enumerate(image)) == (expected, True)


def test_isolated_vertices_are_kept_apart():
    items, edges = PETERSEN
    assert automorphism_parts(items + 7, edges) == (7, 120, True)
    assert automorphism_parts(3, []) == (3, 1, True)
    assert automorphism_parts(3, [(i, j) for i in range(3) for j in range(3)]) == (3, 1, True)


STEPS = (0, 1, 10, 50, 100, 300, 1000, 3000, 10_000, 30_000)


@pytest.mark.parametrize(
    ("graph", "own"),
    [row[1:] for row in KNOWN if row[0] != "Kneser 7 3"]
    + [(_union(ROOK, SHRIKHANDE), 1152 * 192), (_union(SHRIKHANDE, SHRIKHANDE), 192**2 * 2)],
)
def test_a_small_budget_gives_an_upper_bound_and_says_so(graph, own):
    found = [automorphism_count(*graph, steps=steps) for steps in STEPS]
    assert all(bound >= own for bound, _ in found)
    assert all(bound == own for bound, exact in found if exact)
    assert found[0][1] is False


def test_what_is_undecided_counts_as_a_symmetry():
    """Two copies of an asymmetric graph whose colours are all different, and no steps to compare them."""
    rigid = (5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 3), (0, 3)])
    assert automorphism_count(*rigid, steps=0) == (1, True)
    assert automorphism_count(*_union(rigid, rigid)) == (2, True)
    assert automorphism_count(*_union(rigid, rigid), steps=0) == (2, False)
    # one orbit of 19, found only by comparing: every undecided vertex is counted
    bound, exact = automorphism_count(*_paley(19), steps=5_000)
    assert not exact
    assert bound >= 19 * 9
    # regular graphs of one degree look alike at first
    pair = _union(ROOK, SHRIKHANDE)
    bound, exact = automorphism_count(*pair, steps=200)
    assert (bound % 2, exact) == (0, False)
    assert bound >= 2 * 1152 * 192


def test_undecided_with_a_component_of_fewer_symmetries():
    """The second component may not borrow the count of the first when the budget ends between."""
    for steps in range(0, 30_000, 600):
        bound, exact = automorphism_count(*_union(SHRIKHANDE, ROOK), steps=steps)
        assert bound >= 192 * 1152
        assert not exact or bound == 192 * 1152


def test_a_comparison_that_was_not_made_is_not_exact():
    """One cell of two vertices decides the house: enough steps to list it, too few to compare."""
    assert automorphism_count(*HOUSE) == (2, True)
    assert automorphism_count(*HOUSE, steps=40) == (2, False)
    assert automorphism_count(*HOUSE, steps=0) == (2, False)


def test_equal_colors_are_not_yet_an_isomorphism():
    """One edge and its reverse, the vertices told apart by hand."""
    forwards, backwards = _Part((((1, 1),), ((0, 2),))), _Part((((1, 2),), ((0, 1),)))
    apart, swapped = _Coloring([0, 1], [1, 1]), _Coloring([1, 0], [1, 1])
    assert _isomorphic(forwards, apart, backwards, apart, _Budget(100)) is False
    assert _isomorphic(forwards, apart, backwards, swapped, _Budget(100)) is True
    assert _isomorphic(forwards, apart, backwards, swapped, _Budget(2)) is None


def test_twins_take_no_steps():
    for graph in (nx.complete_graph(9), nx.complete_bipartite_graph(3, 4)):
        items, edges = _both_ways(graph)
        own = automorphism_count(items, edges)
        assert own[0] == factorial(9 if items == 9 else 3) * (1 if items == 9 else factorial(4))
        assert automorphism_parts(4 * items, edges, steps=0) == (3 * items, *own)


def test_a_graph_beyond_the_budget_keeps_a_bound():
    """A Moebius ladder has twice as many automorphisms as vertices."""
    items, edges = _circulant(1000, [1, 999, 500])
    bound, exact = automorphism_count(items, edges)
    assert bound >= 2000
    family = graph_family(items, "relabelings", edges=edges)
    assert (family.exact, family.automorphisms, exact) == (False, bound, False)
    assert factorial(1000) // bound <= family.size() <= factorial(1000) // 2000


def test_a_graph_of_many_cells_keeps_a_bound():
    """Houses on a hub: more rounds than the reserve for a bound has."""
    houses = 300
    items, edges = _union((1, []), *[HOUSE] * houses)
    joint = next(v for v in range(5) if sum(v in edge for edge in HOUSE[1]) == 4)
    edges += [(0, 1 + 5 * k + joint) for k in range(houses)]
    own = automorphism_count(*_union((1, []), HOUSE, HOUSE))
    assert own == (8, True)
    bound, exact = automorphism_count(items, edges)
    assert not exact
    own = _house_stabilizer(joint) ** houses * factorial(houses)
    assert bound >= own
    assert automorphism_count(6 + 5, [(i, j) for i, j in edges if max(i, j) <= 10])[0] == (
        _house_stabilizer(joint) ** 2 * 2
    )


def _house_stabilizer(vertex):
    return _by_permutations(5, [*HOUSE[1], (vertex, vertex)])


@given(st.integers(4, 30), st.integers(0, 6), st.integers(0, 10**9))
def test_two_copies_of_a_connected_graph(items, extra, seed):
    """Under other names: twice the square."""
    draw = random.Random(seed)
    edges = {(draw.randrange(v), v) for v in range(1, items)}
    edges = {(j, i) if draw.random() < 0.3 else (i, j) for i, j in edges}
    edges |= {(draw.randrange(items), draw.randrange(items)) for _ in range(extra)}
    own, exact = automorphism_count(items, edges)
    assert exact
    whole, together = _union((items, sorted(edges)), (items, sorted(edges)))
    assert automorphism_count(whole, _shuffled(whole, together, draw)) == (2 * own**2, True)
