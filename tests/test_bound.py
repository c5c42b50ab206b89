"""Bounds as objects: JSON to the bit, corrupt JSON, comparison across models, text and LaTeX."""

import json
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from bounds import (
    ArgumentError,
    Ball,
    Bound,
    Model,
    ModelMismatchError,
    StepProfile,
    head_floor,
    key_dimension_bits,
    min_heads,
    softmax_error,
    softmax_scale,
    storage_efficiency,
)
from bounds.expressions import expression_from_tree, expression_to_tree

LONG = 7 * 10**5400 + 11


def _public_bounds():
    yield head_floor(8, 2, 16)
    yield head_floor(9, 2, 10**30, values="scalar", digits=60)
    yield head_floor(
        8, 2, 16, profile=StepProfile(["1/3", -sympy.sqrt(2) / 2], [1, "-0.5"]), digits=6
    )
    yield min_heads(16, 4, "1/10")
    yield min_heads(16, 4, Fraction(1, 10) + Fraction(1, 10**1000))
    yield min_heads(16, 4, 1)
    yield min_heads(60_000, 5000, "1/400", values="scalar")
    yield softmax_scale(16, "1/10")
    yield softmax_scale(16, 3)
    yield softmax_error(16, 0.1)
    yield key_dimension_bits(1024, 64, 16)
    yield key_dimension_bits(LONG // 10**5000, 64, 16, family="functional", threshold_bits=5)
    yield key_dimension_bits(9, 4, 2, family="digraph", relations=20)
    yield storage_efficiency(256, 16, 80, 16)
    yield storage_efficiency(9, 4, 8, 2, family="digraph", relations=0)


BOUNDS = list(_public_bounds())


def _model(**changes):
    fields = {
        "task": "nearest-neighbor", "attention": "generalized", "values": "general",
        "readout": "sum", "embeddings": "random-frame", "rank": 4, "context": 2,
    }  # fmt: skip
    return Model(**(fields | changes))


def _bound(value, kind="lower", model=None, quantity="heads"):
    return Bound(
        quantity=quantity,
        value=value,
        kind=kind,
        status="proved",
        sentence="at least {value} heads",
        statement=sympy.Ge(sympy.Symbol("H"), 1),
        hypotheses=("d >= 3",),
        model=model or _model(),
        source="[attention-bounds, H2]",
        parameters={"d": 8},
    )


@pytest.mark.parametrize("bound", BOUNDS, ids=range(len(BOUNDS)))
def test_json_restores_every_bit(bound):
    copy = Bound.from_json(bound.to_json())
    assert copy == bound
    assert copy.to_json() == bound.to_json()
    assert type(copy.value) is type(bound.value)
    assert hash(copy) == hash(bound)
    if isinstance(bound.value, Ball):
        assert copy.value.exact() == bound.value.exact()
    for name, value in bound.parameters.items():
        assert type(copy.parameters[name]) is type(value)
    assert copy.statement == bound.statement
    assert str(copy) == str(bound)


@pytest.mark.parametrize("bound", BOUNDS, ids=range(len(BOUNDS)))
def test_text_and_latex(bound):
    text, latex = str(bound), bound._repr_latex_()
    assert bound.value_text() in text
    assert "{value}" not in text
    assert bound.source.strip("[]") in text
    assert bound.status in text
    assert latex.startswith("$")
    assert latex.endswith("$")
    assert latex.count("{") == latex.count("}")
    assert bound.quantity in latex
    assert len(text) < 1000
    relation = {"lower": r"\ge", "upper": r"\le", "exact": "="}[bound.kind]
    assert relation in latex


@given(
    st.one_of(
        st.integers(),
        st.fractions(),
        st.builds(
            Ball, st.integers(), st.integers(-900, 900), st.integers(0), st.integers(-900, 900)
        ),
        st.sampled_from([sympy.pi / 3, sympy.sqrt(2) - sympy.E, 1 / sympy.pi**2, sympy.log(5)]),
    ),
    st.sampled_from(["lower", "upper", "exact"]),
)
def test_json_restores_any_value(value, kind):
    bound = _bound(value, kind)
    copy = Bound.from_json(bound.to_json())
    assert copy == bound
    assert copy.value == value


@pytest.mark.parametrize(
    "value",
    [LONG, -LONG, Fraction(LONG, 10**5000 + 1), Ball(LONG, -3, 1, -5)],
    ids=["int", "negative", "fraction", "ball"],
)
def test_numbers_of_thousands_of_digits(value):
    bound = _bound(value)
    copy = Bound.from_json(bound.to_json())
    assert copy == bound
    assert copy.value == value
    assert len(str(bound)) < 12_000
    assert bound._repr_latex_().startswith("$")


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (27, "27"), (-3, "-3"), (10**15, "2^49.82")]
)
def test_counts_for_people(value, shown):
    assert shown in str(_bound(value))


def test_a_power_of_two_is_shown_with_its_own_logarithm():
    assert "2^64.00" in str(_bound(2**64))


def test_balls_are_shown_rounded_in_the_sound_direction():
    third = Ball.of(Fraction(1, 3))
    assert _bound(third, "lower").value_text() == "0.3333333333"
    assert _bound(third, "upper").value_text() == "0.3333333334"
    assert _bound(third, "exact").value_text() == "0.3333333333"


def _corrupt(change):
    data = json.loads(BOUNDS[0].to_json())
    change(data)
    return pytest.param(json.dumps(data), id=change.__name__)


def _set(*path_and_value):
    *path, last, value = path_and_value

    def change(data):
        for name in path:
            data = data[name]
        data[last] = value

    change.__name__ = f"{'.'.join([*path, last])} = {value}"
    return change


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", "3", "[]", "{}", '"bound"', '{"format": 1}', "[1, 2]", "NaN",
        _corrupt(_set("format", "attention-bounds bound 2")),
        _corrupt(lambda data: data.pop("value")),
        _corrupt(lambda data: data.pop("model")),
        _corrupt(_set("value", {"ball": "0x1*2^0"})),
        _corrupt(_set("value", {"ball": 3})),
        _corrupt(_set("value", {"int": "abc"})),
        _corrupt(_set("value", {"int": "1", "ball": "2"})),
        _corrupt(_set("value", {"fraction": ["1", "0"]})),
        _corrupt(_set("value", {"fraction": ["1"]})),
        _corrupt(_set("value", {"float": 0.1})),
        _corrupt(_set("value", 0.1)),
        _corrupt(_set("value", None)),
        _corrupt(_set("value", {"text": "seven"})),
        _corrupt(_set("kind", "greatest")),
        _corrupt(_set("kind", ["lower"])),
        _corrupt(_set("status", "certain")),
        _corrupt(_set("quantity", 5)),
        _corrupt(_set("model", {})),
        _corrupt(_set("model", "task", "chess")),
        _corrupt(_set("model", "rank", -1)),
        _corrupt(_set("model", "rank", 1.5)),
        _corrupt(_set("model", "color", "red")),
        _corrupt(_set("statement", [])),
        _corrupt(_set("statement", ["Rational"])),
        _corrupt(_set("statement", ["Symbol"])),
        _corrupt(_set("statement", ["Rational", "0x1", "zz"])),
        _corrupt(_set("statement", ["Rational", "0x1", "0x0"])),
        _corrupt(_set("statement", ["Constant", "tau"])),
        _corrupt(_set("statement", ["sympify", "1+1"])),
        _corrupt(_set("statement", ["__import__", "os"])),
        _corrupt(_set("statement", ["NoSuchClass"])),
        _corrupt(_set("statement", 5)),
        _corrupt(_set("statement", None)),
        _corrupt(_set("parameters", [1])),
        _corrupt(_set("parameters", "d", 8)),
        _corrupt(_set("hypotheses", None)),
    ],
)  # fmt: skip
def test_corrupt_json_is_an_argument_error(text):
    with pytest.raises(ArgumentError):
        Bound.from_json(text)


def test_the_corruption_is_what_makes_it_fail():
    (untouched,) = _corrupt(lambda data: None).values
    assert Bound.from_json(untouched) == BOUNDS[0]
    for bad in (None, 3, b"\xff", ["{}"]):
        with pytest.raises(ArgumentError):
            Bound.from_json(bad)


def test_an_expression_tree_evaluates_no_text():
    with pytest.raises(ArgumentError):
        expression_from_tree(["S", "__import__('os')"])
    evil = ["Symbol", "__import__('os').getpid()", {}]
    assert expression_from_tree(evil) == sympy.Symbol("__import__('os').getpid()")


@pytest.mark.parametrize("bound", BOUNDS, ids=range(len(BOUNDS)))
def test_expression_trees_survive_json(bound):
    tree = json.loads(json.dumps(expression_to_tree(bound.statement)))
    assert expression_from_tree(tree) == bound.statement


def test_bounds_are_frozen():
    bound = BOUNDS[0]
    for name in ("value", "kind", "status", "model", "parameters"):
        with pytest.raises(FrozenInstanceError):
            setattr(bound, name, getattr(bound, name))
    with pytest.raises(FrozenInstanceError):
        bound.model.rank = 1
    with pytest.raises(FrozenInstanceError):
        del bound.value


def test_the_parameters_of_a_bound_cannot_be_changed_either():
    bound = head_floor(8, 2, 16)
    with pytest.raises(TypeError):
        bound.parameters["d"] = 9


@pytest.mark.parametrize(
    ("field", "value"), [("kind", "largest"), ("status", "sure"), ("kind", None)]
)
def test_kinds_and_statuses_are_checked(field, value):
    with pytest.raises(ArgumentError, match=f"{field} = "):
        replace(BOUNDS[0], **{field: value})


ORDER = {
    "attention": [("generalized", "hard"), ("generalized", "soft")],
    "values": [("general", "scalar")],
    "embeddings": [("free", "random-frame"), ("free", "fixed")],
    "rank": [(5, 4), (None, 4)],
    "weight_bits": [(16, 8), (None, 8)],
}


@pytest.mark.parametrize(
    ("field", "wide", "narrow"), [(f, a, b) for f, pairs in ORDER.items() for a, b in pairs]
)
def test_a_model_covers_its_subclasses_only(field, wide, narrow):
    large, small = _model(**{field: wide}), _model(**{field: narrow})
    assert large.covers(small)
    assert not small.covers(large)
    assert large.covers(large)
    lower, upper = _bound(3, "lower", large), _bound(5, "upper", small)
    assert lower.applies_to(small)
    assert not _bound(3, "lower", small).applies_to(large)
    assert upper.applies_to(large)
    assert not _bound(5, "upper", large).applies_to(small)
    assert not _bound(5, "exact", large).applies_to(small)
    assert _bound(5, "exact", large).applies_to(large)
    assert lower.is_below(upper)
    with pytest.raises(ModelMismatchError, match="does not contain"):
        _bound(3, "lower", small).is_below(_bound(5, "upper", large))


@pytest.mark.parametrize(
    "change",
    [{"task": "relations"}, {"readout": "row-argmax"}, {"context": 3}, {"context": None}],
    ids=str,
)
def test_other_tasks_readouts_and_contexts_are_never_compared(change):
    one, two = _model(), _model(**change)
    assert not one.covers(two)
    assert not two.covers(one)
    with pytest.raises(ModelMismatchError):
        _bound(3, "lower", one).is_below(_bound(5, "upper", two))


def test_hard_and_soft_do_not_cover_each_other():
    hard, soft = _model(attention="hard"), _model(attention="soft")
    assert not hard.covers(soft)
    assert not soft.covers(hard)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("task", "chess"), ("attention", "linear"), ("values", "diagonal"), ("readout", "max"),
        ("embeddings", "learned"), ("rank", 0), ("rank", 1.0), ("rank", True), ("context", -1),
        ("weight_bits", "8"), ("task", None),
    ],
)  # fmt: skip
def test_models_check_their_fields(field, value):
    with pytest.raises(ArgumentError, match=f"{field} = "):
        _model(**{field: value})


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (3, 4),
        (4, 4),
        (Fraction(1, 3), 1),
        (Ball.of(Fraction(1, 3)), Fraction(1, 2)),
        (3, Ball.of(sympy.pi)),
        (Ball.of(sympy.E), Ball.of(sympy.pi)),
        (sympy.E, sympy.pi),
        (3, sympy.pi),
        (sympy.sqrt(2), Fraction(3, 2)),
    ],
)
def test_is_below_compares_any_two_kinds_of_value(low, high):
    assert _bound(low).is_below(_bound(high, "upper")) is True
    assert low == high or _bound(high).is_below(_bound(low, "upper")) is False


def test_is_below_refuses_other_quantities_and_directions():
    lower, upper = _bound(3), _bound(5, "upper")
    with pytest.raises(ModelMismatchError, match="cannot be compared"):
        lower.is_below(replace(upper, quantity="error"))
    with pytest.raises(ModelMismatchError):
        upper.is_below(lower)
    with pytest.raises(ModelMismatchError):
        lower.is_below(lower)
    assert _bound(3, "exact").is_below(upper)
    assert lower.is_below(_bound(5, "exact"))


def test_a_floor_is_not_compared_with_an_error_of_another_problem():
    """d, the target and the heads make the problem: a bound for one says nothing of another."""
    narrow = replace(_model(), attention="soft", values="scalar")
    upper = replace(
        _bound(Fraction(1, 3), "upper", narrow, "error"), parameters={"d": 64, "heads": 1}
    )
    floor = head_floor(8, 4, 1)
    with pytest.raises(ModelMismatchError):
        floor.is_below(upper)
    other = head_floor(64, 4, 1, profile=StepProfile(["1/10"], [1]), digits=6)
    with pytest.raises(ModelMismatchError):
        other.is_below(upper)
    assert head_floor(64, 4, 1).is_below(replace(upper, value=Fraction(1, 2)))


def test_a_full_rank_head_is_outside_the_floors_model():
    with pytest.raises(ModelMismatchError):
        head_floor(64, 4, 1).is_below(softmax_error(64, 100))
