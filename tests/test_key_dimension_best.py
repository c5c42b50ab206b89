"""C2, C3 and the best bound: the reference table, exact counting, codes that attain bounds."""

from fractions import Fraction
from itertools import permutations, product
from math import comb, cos, factorial, pi

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.mpmath_numbers import is_near

from bounds import ArgumentError, Bound, HypothesisError
from bounds.graph_families import graph_family
from bounds.key_dimension_best import key_dimension
from bounds.key_dimension_margin import key_dimension_margin, key_dimension_packing
from bounds.key_dimension_real import (
    HEADS_STATEMENT,
    _count,
    head_freedom,
    key_dimension_real,
    least_heads,
    realized_graphs_log2,
)
from bounds.sign_patterns import sign_pattern_bound, sign_pattern_log2


def _patterns(unknowns, polynomials):
    """The verified sum, term by term, at degree 2."""
    terms = range(min(unknowns, polynomials + 1) + 1)
    return sum(comb(polynomials + 1, l) * 2**l for l in terms) * 4**unknowns  # noqa: E741


@pytest.mark.parametrize(
    ("items", "d_model", "value"), [(256, 16, 4), (1024, 64, 4), (16384, 512, 9)]
)
def test_reference_table(items, d_model, value):
    plain = key_dimension_real(items, d_model, gauge=False, form="closed")
    assert plain.value == value
    assert (plain.kind, plain.status, plain.quantity) == ("lower", "proved", "key dimension")
    with mpmath.workdps(30):
        for key_dim, enough in ((value - 1, False), (value, True)):
            n, count = 2 * d_model * key_dim + 1, key_dim * items**2
            have = n * mpmath.log(8 * mpmath.e * (count + 1) / n)
            assert (have >= mpmath.loggamma(items + 1)) == enough
    assert key_dimension_real(items, d_model).value >= value


@given(st.integers(0, 12), st.integers(1, 60), st.integers(1, 5))
def test_the_sum_is_the_verified_one_and_below_the_closed_form(unknowns, polynomials, degree):
    exact = sign_pattern_bound(unknowns, polynomials, degree)
    base = 2 * max(2, degree)
    terms = range(min(unknowns, polynomials + 1) + 1)
    total = sum(comb(polynomials + 1, l) * 2**l for l in terms) * base**unknowns  # noqa: E741
    assert exact == min(2**polynomials, total)
    ball = sign_pattern_log2(unknowns, polynomials, degree, digits=20)
    with mpmath.workdps(40):
        assert is_near(ball, mpmath.log(exact, 2), Fraction(1, 10**18))
    if 1 <= unknowns <= polynomials + 1:
        closed = sign_pattern_log2(unknowns, polynomials, degree, form="closed", digits=20)
        assert ball.lower <= closed.upper
        with mpmath.workdps(40):
            truth = unknowns * mpmath.log(2 * base * mpmath.e * (polynomials + 1) / unknowns, 2)
        assert is_near(closed, truth, Fraction(1, 10**17))


def test_large_sums_by_exact_integers():
    for unknowns, polynomials in ((300, 4000), (900, 1801), (1000, 10**9)):
        exact = min(_patterns(unknowns, polynomials), 2 ** min(polynomials, 10**6))
        with mpmath.workdps(40):
            truth = mpmath.log(exact, 2)
        assert is_near(sign_pattern_log2(unknowns, polynomials), truth, Fraction(1, 10**10))


def test_patterns_of_random_quadratics_stay_below():
    rng = np.random.default_rng(5)
    for polynomials in (3, 6, 10):
        coefficients = rng.normal(size=(polynomials, 3))
        roots = np.concatenate([np.roots(row) for row in coefficients])
        cuts = np.sort(roots[np.abs(roots.imag) < 1e-12].real)
        points = np.concatenate([[cuts[0] - 1], (cuts[1:] + cuts[:-1]) / 2, [cuts[-1] + 1]])
        signs = {tuple(np.polyval(row, t) > 0 for row in coefficients) for t in points}
        assert len(signs) <= sign_pattern_bound(1, polynomials)


@pytest.mark.parametrize(
    ("d_model", "key_dim"), [(1, 1), (3, 1), (3, 2), (4, 2), (4, 4), (3, 5), (6, 4)]
)
def test_the_freedom_of_a_head_is_the_rank_of_its_derivative(d_model, key_dim):
    rng = np.random.default_rng(d_model * 10 + key_dim)
    w_q, w_k = rng.normal(size=(2, d_model, key_dim))
    columns = []
    for i, j in product(range(d_model), range(key_dim)):
        step = np.zeros((d_model, key_dim))
        step[i, j] = 1
        columns += [(step @ w_k.T).ravel(), (w_q @ step.T).ravel()]
    assert np.linalg.matrix_rank(np.array(columns)) == head_freedom(d_model, key_dim)


def test_the_chart_of_a_head_keeps_every_score():
    rng = np.random.default_rng(0)
    for d_model, key_dim in ((3, 1), (5, 3), (4, 4), (3, 6)):
        w_q, w_k = rng.normal(size=(2, d_model, key_dim))
        if key_dim > d_model:
            chart_q, chart_k = np.eye(d_model), w_k @ w_q.T
        else:
            top = w_q[:key_dim]
            chart_q, chart_k = w_q @ np.linalg.inv(top), w_k @ top.T
            assert np.allclose(chart_q[:key_dim], np.eye(key_dim))
        assert np.allclose(chart_q @ chart_k.T, w_q @ w_k.T)


def _most_graphs(items, d_model, key_dim, heads=None):
    """The bound, over every way to split the key dimension, by integers alone."""
    width, best = min(d_model, items), 0

    def splits(total, parts):
        if parts == 1:
            yield (total,)
            return
        for first in range(total + 1):
            for rest in splits(total - first, parts - 1):
                yield (first, *rest)

    for split in splits(key_dim, min(heads or key_dim, key_dim)):
        used = [min(size, width) for size in split if size]
        n = sum(size * (2 * width - size) for size in used)
        count = len(used) * items**2
        regions = sum(comb(count - 1, l) for l in range(len(used) * width**2 + 1))  # noqa: E741
        unions = _unions(items, width, len(used))
        best = max(best, 2 * min(2**count, _patterns(n, count), regions, unions))
    return best


def _unions(items, width, heads):
    """The ways to choose one graph for each head, in whatever order."""
    one_head = sum(comb(items**2, l) for l in range(width**2 + 1))  # noqa: E741
    return comb(one_head + heads - 1, heads)


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_the_least_dimension_by_exact_counting_over_all_splits(items, d_model, heads, data):
    name = data.draw(st.sampled_from(["permutation", "functional", "digraph", "out-regular"]))
    options = {
        "digraph": {"relations": data.draw(st.integers(0, items**2))},
        "out-regular": {"degree": data.draw(st.integers(0, items))},
    }.get(name, {})
    family = graph_family(items, name, **options)
    limit = None if data.draw(st.booleans()) else heads
    dimension = 0 if family.size() == 1 else 1
    while dimension and family.size() > _most_graphs(items, d_model, dimension, limit):
        dimension += 1
        if dimension > 6:
            return
    assert key_dimension_real(items, d_model, family=family, heads=limit).value == dimension


def test_no_bound_is_above_what_all_graphs_need():
    for items in (2, 3, 4):
        assert realized_graphs_log2(items, items, items, heads=1) > items**2 - 1


@pytest.mark.parametrize("items", [2, 4, 7])
@pytest.mark.parametrize(("d_model", "key_dim", "heads"), [(1, 1, 1), (2, 2, 1), (2, 3, 2)])
def test_the_count_of_graphs_is_that_by_integers(items, d_model, key_dim, heads):
    """Graphs that can be realised are listed, and set beside it, in test_brute_force."""
    with mpmath.workdps(30):
        assert is_near(
            realized_graphs_log2(items, d_model, key_dim, heads=heads),
            mpmath.log(_most_graphs(items, d_model, key_dim, heads), 2),
            Fraction(1, 10**10),
        )


def _term_by_term(term, limits):
    index, first, last = limits
    return sum(term.subs(index, k) for k in range(int(first), int(last) + 1))


@pytest.mark.parametrize(
    "options",
    [{}, {"form": "closed"}, {"gauge": False}, {"gauge": False, "form": "closed"},
     {"readout": "row-argmax"}, {"heads": 5}, {"biases": True}],
)  # fmt: skip
def test_every_statement_holds_at_the_value_and_not_below(options):
    """The sympy statement itself, evaluated at n, F of the value and of the value less one."""
    items, d_model = 40, 2
    bound = key_dimension_real(items, d_model, **options)
    assert Bound.from_json(bound.to_json()) == bound
    width = d_model + options.get("biases", False)
    for key_dim, holds in ((bound.value - 1, False), (bound.value, True)):
        heads = min(options.get("heads", key_dim), key_dim)
        size, larger = divmod(key_dim, heads)
        free = sum(k * (2 * width - k) for k in [size + 1] * larger + [size] * (heads - larger))
        n = free if options.get("gauge", True) else 2 * width * key_dim + 1
        count = heads * items**2
        if "readout" in options:
            count = 2 * items * comb(items * heads, 2)
        given_values = {"G": factorial(items), "F": count, "n": n, "h": heads, "d": width}
        parts = (
            bound.statement.args if isinstance(bound.statement, sympy.And) else (bound.statement,)
        )
        verdicts = []
        for part in parts:
            values = {s: given_values[s.name] for s in part.free_symbols}
            verdicts.append(bool(part.subs(values).replace(sympy.Sum, _term_by_term)))
        assert all(verdicts) == holds


def test_too_few_heads_are_an_error_that_names_the_hypothesis():
    with pytest.raises(HypothesisError, match="enough heads"):
        key_dimension_real(1024, 8, heads=1)
    assert key_dimension_real(1024, 8).value > 8
    with pytest.raises(HypothesisError, match="enough heads"):
        key_dimension(1024, 8, heads=2)


@pytest.mark.parametrize(("items", "d_model"), [(6, 1), (10, 1), (12, 2), (40, 2), (64, 3)])
def test_the_least_number_of_heads_by_exact_counting(items, d_model):
    heads = 1
    while 2 * min(
        _unions(items, d_model, heads),
        sum(comb(heads * items**2 - 1, l) for l in range(heads * d_model**2 + 1)),  # noqa: E741
    ) < factorial(items):
        heads += 1
    bound = least_heads(items, d_model)
    assert bound.value == heads
    assert (bound.quantity, bound.kind) == ("heads", "lower")
    if heads > 1:
        with pytest.raises(HypothesisError, match="enough heads"):
            key_dimension_real(items, d_model, heads=heads - 1)
    assert key_dimension_real(items, d_model, heads=heads).value <= heads * d_model


@pytest.mark.parametrize("heads", [1, 2, 30, 10**6, 2**40])
@pytest.mark.parametrize(("items", "d_model"), [(1, 1), (3, 1), (3, 2), (40, 2), (300, 8)])
def test_unions_of_many_heads(items, d_model, heads):
    """Many heads of one dimension at d_model = 1, 2, 8: the count by unions, in mpmath's log-Gamma."""
    ball = realized_graphs_log2(items, d_model, heads * d_model, heads=heads)
    width = min(d_model, items)
    graphs = sum(comb(items**2, l) for l in range(width**2 + 1))  # noqa: E741
    with mpmath.workdps(40 + len(str(graphs)) + 13):
        unions = mpmath.loggamma(graphs + heads) - mpmath.loggamma(graphs)
        unions = 1 + (unions - mpmath.loggamma(heads + 1)) / mpmath.log(2)
        assert ball.lower <= Fraction(str(unions + mpmath.mpf(10) ** -12))
        if heads > 30 * width**2:  # neither the trivial count nor the others are less
            least = min(unions, heads * items**2 + 1)
            assert is_near(ball, least, Fraction(1, 10**10))


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize(("items", "d_model"), [(2, 1), (5, 1), (5, 2), (12, 2)])
def test_the_three_counts_in_integers_and_in_the_statement(items, d_model, heads):
    """The unions are the least of the three at d_model = 1, two heads or more."""
    count = _count(items, d_model, heads * d_model, heads, "max-threshold", True, "sum")
    regions = sum(comb(heads * items**2 - 1, l) for l in range(heads * d_model**2 + 1))  # noqa: E741
    patterns = _patterns(heads * d_model**2, heads * items**2)
    unions = _unions(items, d_model, heads)
    assert count.exact() == 2 * min(patterns, regions, unions, 2 ** (heads * items**2))
    given_values = {"F": heads * items**2, "h": heads, "d": d_model, "G": 0}
    sides = []
    for part in HEADS_STATEMENT.args:
        values = {s: given_values[s.name] for s in part.rhs.free_symbols}
        sides.append(int(part.rhs.subs(values).replace(sympy.Sum, _term_by_term)))
    assert sorted(sides) == sorted([2 * regions, 2 * unions])
    if d_model == 1 and heads > 1:
        assert count.exact() == 2 * unions


def test_fewer_heads_never_need_less_and_are_at_least_the_free_bound():
    free = key_dimension_real(1024, 64, family="digraph", relations=10240).value
    values = [
        key_dimension_real(1024, 64, family="digraph", relations=10240, heads=h).value
        for h in (4, 8, 16, 32, 64)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1] == free


def test_embeddings_of_few_items_span_few_dimensions():
    wide = key_dimension_real(20, 5000, family="digraph", relations=200)
    assert wide.value == key_dimension_real(20, 20, family="digraph", relations=200).value
    plain = key_dimension_real(20, 5000, family="digraph", relations=200, gauge=False)
    assert plain.value <= wide.value


def test_row_argmax_counts_comparisons():
    bound = key_dimension_real(4096, 16, readout="row-argmax")
    assert bound.model.readout == "row-argmax"
    assert 1 < bound.value <= key_dimension_real(4096, 16).value
    with mpmath.workdps(30):
        for key_dim, enough in ((bound.value - 1, False), (bound.value, True)):
            n, count = key_dim * 31, 2 * 4096 * comb(4096 * key_dim, 2)
            have = mpmath.log(mpmath.binomial(count + 1, n)) + n * mpmath.log(8)
            assert (have + 1 >= mpmath.loggamma(4097)) == enough
    for items, heads in ((30, 1), (30, 2)):
        count = 2 * items * comb(heads * items, 2)
        regions = sum(comb(count, k) for k in range(heads * 9 + 1))
        least = min(regions, _patterns(heads * 5, count))  # d_model = 3, d_k = 1: 5 unknowns
        ball = realized_graphs_log2(items, 3, heads, heads=heads, readout="row-argmax")
        with mpmath.workdps(30):
            assert is_near(ball, mpmath.log(least, 2), Fraction(1, 10**10))
    with pytest.raises(HypothesisError, match="one successor"):
        key_dimension_real(8, 4, family="digraph", relations=3, readout="row-argmax")
    with pytest.raises(HypothesisError, match="readout"):
        key_dimension_real(8, 4, readout="null-token-softmax")


def _circle(items):
    """The circle code for d_model = m orthonormal items: W_Q, W_K and the margin."""
    angles = 2 * pi * np.arange(items) / items
    return np.stack([np.cos(angles), np.sin(angles)], axis=1), (1 - cos(2 * pi / items)) / 2


@pytest.mark.parametrize("items", [3, 4, 5, 6, 8, 20, 100])
def test_the_circle_code_is_not_excluded(items):
    code, margin = _circle(items)
    for image in list(permutations(range(items)))[:50] if items < 7 else [range(items)[::-1]]:
        scores = code[list(image)] @ code.T  # the query of i is the key of its image
        relations = np.eye(items, dtype=bool)[list(image)]
        middle = (1 + cos(2 * pi / items)) / 2
        assert scores[relations].min() >= middle + margin - 1e-9
        assert scores[~relations].max() <= middle - margin + 1e-9
    safe = Fraction(margin) * Fraction(999, 1000)
    assert key_dimension_packing(items, safe).value <= 2
    assert key_dimension_margin(items, items, safe, Fraction(np.linalg.norm(code)) * 2).value <= 2


@pytest.mark.parametrize("items", [2, 3, 10, 1000])
def test_the_orthonormal_code_is_not_excluded(items):
    assert key_dimension_packing(items, "1/2").value <= items
    assert (
        key_dimension_packing(items, Fraction(items, 2 * (items - 1))).value <= items - 1
    )  # simplex


@given(st.integers(2, 10**6), st.fractions(Fraction(1, 1000), 1), st.fractions(1, 8))
@settings(deadline=None)
def test_packing_is_the_least_power(items, margin, norm):
    found = key_dimension_packing(items, margin, norm).value
    base = 1 + norm**2 / margin
    assert base**found >= items
    assert found == 1 or base ** (found - 1) < items


def test_packing_ties_are_decided_exactly():
    assert key_dimension_packing(2**20, 1).value == 20
    assert key_dimension_packing(2**20 + 1, 1).value == 21
    assert key_dimension_packing(3**11, "1/2").value == 11
    assert key_dimension_margin(4, 1, 1, 1, family="functional").value == 3


@given(st.integers(2, 40), st.integers(1, 6), st.fractions(Fraction(1, 100), 1), st.integers(1, 4))
@settings(deadline=None)
def test_margin_is_the_least_power(items, d_model, margin, norm):
    found = key_dimension_margin(items, d_model, margin, norm).value
    base, unit = 1 + 2 * Fraction(norm) ** 2 / margin, 2 * min(d_model, items)
    assert base ** (unit * found) >= factorial(items)
    assert found == 1 or base ** (unit * (found - 1)) < factorial(items)


def test_huge_margins_families():
    bound = key_dimension_margin(10**6, 4096, "1/10", 3)
    with mpmath.workdps(30):
        truth = mpmath.loggamma(10**6 + 1) / (2 * 4096 * mpmath.log(181))
    assert bound.value == int(mpmath.ceil(truth))


def test_separated_layers_of_one_dimension_are_within_the_volume_bound():
    """d_model = d_k = 1, x = 1, -1: scores are w, -w, |w| <= B^2; all margin graphs by hand."""
    norm = 2
    for margin in (Fraction(1), Fraction(3), Fraction(4)):
        graphs = set()
        for w in (Fraction(k, 10) for k in range(-40, 41)):
            scores = np.array([w, -w, -w, w])
            for tau in (Fraction(k, 10) for k in range(-60, 61)):
                if all(abs(score - tau) >= margin for score in scores):
                    graphs.add(tuple(score > tau for score in scores))
        one_size = sum(1 for graph in graphs if sum(graph) == 2)
        assert one_size <= (1 + 2 * norm**2 / margin) ** 2


def test_margins_larger_than_any_score_are_refused():
    with pytest.raises(HypothesisError, match="margin"):
        key_dimension_margin(8, 4, 5, 2)
    with pytest.raises(HypothesisError, match="margin"):
        key_dimension_packing(8, 2)
    assert key_dimension_packing(8, 2, family="digraph", relations=64).status == "vacuous"


def test_biases_are_one_more_coordinate():
    plain = key_dimension_margin(1000, 63, "1/10", 2, biases=True).value
    with mpmath.workdps(30):
        truth = mpmath.loggamma(1001) / (128 * mpmath.log(161))
    assert plain == int(mpmath.ceil(truth))
    assert key_dimension_real(1000, 63, biases=True).value == key_dimension_real(1000, 64).value


def test_the_best_of_all_and_the_others_beside_it():
    found = key_dimension(1024, 64, bits=1, margin="1/10", weight_norm=2)
    values = {name: bound.value for name, bound in found.candidates}
    assert values == {"C2": 4, "C1": 69, "C3": 11, "C3 packing": 2}
    assert (found.value, found.winner) == (69, "C1")
    assert "C3 packing: 2" in str(found)
    assert key_dimension(1024, 64, bits=64).winner == "C2"
    assert key_dimension(1024, 64, margin="1/2", key_norm=1).winner == "C3 packing"
    assert key_dimension(1024, 64, margin="1/2", weight_norm=1).winner == "C3"
    biased = key_dimension(1024, 64, margin="1/2", weight_norm=2, bits=8, biases=True)
    assert [name for name, _ in biased.candidates] == ["C2", "C1", "C3"]
    argmax = key_dimension(1024, 64, bits=4, readout="row-argmax")
    assert {bound.model.readout for _, bound in argmax.candidates} == {"row-argmax"}
    for _, bound in (*found.candidates, *biased.candidates):
        assert Bound.from_json(bound.to_json()) == bound
        assert bound.kind == "lower"
        assert bound.value_text() in str(bound)


def test_a_margin_alone_is_that_of_unit_queries_and_keys():
    alone = key_dimension(1024, 64, margin="1/2")
    assert alone.candidates == key_dimension(1024, 64, margin="1/2", key_norm=1).candidates
    assert "norms of queries and keys of each head at most 1" in alone.best.hypotheses
    with pytest.raises(HypothesisError, match="at most 1"):
        key_dimension(1024, 64, margin=2)


def test_the_best_for_every_family():
    edges = [(2 * i, 2 * i + 1) for i in range(100)]
    for family, options in (
        ("functional", {}), ("digraph", {"relations": 300}), ("regular", {"degree": 3}),
        ("out-regular", {"degree": 3}), ("out-degree", {"degree": 3}), ("relabelings", {"edges": edges}),
    ):  # fmt: skip
        found = key_dimension(
            300, 16, family, bits=2, margin="1/4", weight_norm=2, key_norm=2, **options
        )
        assert len(found.candidates) == 4
        assert found.value == max(bound.value for _, bound in found.candidates) > 0
        assert all(bound.parameters["family"] == family for _, bound in found.candidates)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"margin": -1}, "margin"), ({"weight_norm": 1}, "weight_norm"), ({"key_norm": 1}, "key_norm"),
     ({"margin": 0, "weight_norm": 1}, "margin"), ({"margin": 1, "weight_norm": -1}, "weight_norm"),
     ({"heads": 0}, "heads"), ({"bits": 0}, "bits"), ({"biases": 1}, "biases"),
     ({"threshold_bits": 4}, "threshold_bits"), ({"degree": 2}, "degree"),
     ({"margin": 1, "key_norm": 1, "readout": "row-argmax"}, "margin")],
)  # fmt: skip
def test_bad_arguments_are_named(options, name):
    with pytest.raises(ArgumentError, match=f"{name} = "):
        key_dimension(16, 4, **options)


@pytest.mark.parametrize("items", [10**20, 10**21, 10**100])
def test_heads_for_more_items_than_floats_can_count(items):
    """Between h log2 A + 1 - log2 h! and the same with (1 + h/A): unions decide, A far above h^2."""
    heads = least_heads(items, 64).value
    with mpmath.workdps(400):
        f, n = mpmath.mpf(items) ** 2, 64**2
        one = mpmath.loggamma(f + 1) - mpmath.loggamma(n + 1) - mpmath.loggamma(f - n + 1)
        one += mpmath.log1p(n / (f - n + 1))  # the terms below the last two are smaller still
        for h, enough in ((heads - 1, False), (heads, True)):
            have = h * one - mpmath.loggamma(h + 1) + mpmath.log(2)
            assert (have >= mpmath.loggamma(items + 1)) == enough


def test_too_few_heads_are_told_how_many_it_takes():
    needed = least_heads(5, 2, family="digraph", relations=5).value
    with pytest.raises(HypothesisError, match=f"at least {needed}, but with 1 head of any size"):
        key_dimension_real(5, 2, family="digraph", relations=5, heads=1)
    with pytest.raises(HypothesisError, match="for the family, but with 1 head of any size"):
        key_dimension_real(1024, 8, heads=1, readout="row-argmax")
