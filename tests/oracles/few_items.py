"""Configurations of a few items, in integers, and the graphs that heads realise on them."""

from collections import Counter
from functools import cache
from itertools import combinations, permutations, product

import mpmath
import numpy as np

from oracles import realizability as exact

LINE = [(1,), (-2,), (3,), (-5,), (7,), (-11,)]
ROUND = [(-5, 6), (-1, -8), (7, 4), (-7, -5), (6, -5), (2, 8)]  # the corners of a hexagon
INSIDE = [(1, 0), (1, 2), (-1, 3), (2, -1), (-3, -2), (3, 1)]  # some within the hull of others
OPPOSITE = [(1, 0), (0, 1), (-1, 0), (0, -1), (1, 2), (-1, -2)]
REPEATED = [(1, 0), (1, 2), (1, 0), (-1, 3), (2, -1), (-3, -2)]
ZERO = [(1, 0), (1, 2), (0, 0), (-1, 3), (2, -1), (-3, -2)]
SPACE = [(5, 1, 2), (-2, 5, 1), (-1, -3, 5), (-4, -2, -3), (3, -4, -2), (1, 3, -5)]
UNIT = [(65, 0), (25, 60), (-39, 52), (-63, -16)]  # of norm 65
PLANE = {"round": ROUND, "inside": INSIDE, "opposite": OPPOSITE, "repeated": REPEATED, "zero": ZERO}


@cache
def full_graphs(name, items):
    """The graphs of one full head."""
    return exact.full_head_graphs(PLANE[name][:items])


@cache
def narrow_graphs(name, items):
    """The graphs of one head with d_k = 1."""
    return exact.one_dimensional_graphs(PLANE[name][:items])


def is_at_most(count, ball):
    """count <= 2^ball, at 30 digits; balls of realised graphs have 15."""
    with mpmath.workdps(30):
        return mpmath.log(count, 2) <= mpmath.mpf(ball.upper.numerator) / ball.upper.denominator


def adjacency(mask, items):
    """The adjacency matrix of a bit mask."""
    bits = [mask >> k & 1 for k in range(items * items)]
    return np.array(bits, dtype=bool).reshape(items, items)


def recognized(items, form, tau):
    """The graph of the pairs with x_i M x_j > tau, by integers."""
    x, size = np.array(items, dtype=object), len(items[0])
    scores = x @ np.array(form, dtype=object).reshape(size, size) @ x.T
    return sum(1 << k for k, score in enumerate(scores.ravel().tolist()) if score > tau)


def family_graphs(items, name, number=None):
    """The graphs of a family, and what the package calls it."""
    size = range(items)
    if name == "permutation":
        return [exact.mask_of(enumerate(s), items) for s in permutations(size)], {}
    if name == "functional":
        return [exact.mask_of(enumerate(s), items) for s in product(size, repeat=items)], {}
    if name == "digraph":
        chosen = combinations(range(items**2), number)
        return [sum(1 << k for k in pairs) for pairs in chosen], {"relations": number}
    rows = product(combinations(size, number), repeat=items)
    if name == "regular":
        rows = (r for r in rows if set(Counter(j for row in r for j in row).values()) == {number})
        rows = (r for r in rows if len({j for row in r for j in row}) == items)
    return [exact.mask_of([(i, j) for i in size for j in row[i]], items) for row in rows], {
        "degree": number
    }
