"""sympy expressions as JSON trees: written and read back without evaluating any text."""

from __future__ import annotations

from typing import Any

import sympy
from sympy.core.function import AppliedUndef
from sympy.logic.boolalg import BooleanAtom

from bounds.errors import ArgumentError


def expression_to_tree(expression: sympy.Basic) -> Any:
    """A tree of lists, strings and booleans for a sympy expression.

    >>> tree = expression_to_tree(sympy.Rational(3, 4) / sympy.pi**2)
    >>> expression_from_tree(tree)
    3/(4*pi**2)
    """
    if isinstance(expression, sympy.Rational):
        return ["Rational", hex(int(expression.p)), hex(int(expression.q))]
    if isinstance(expression, sympy.Symbol):
        return ["Symbol", expression.name, dict(expression.assumptions0)]
    if isinstance(expression, AppliedUndef):
        return ["Function", expression.func.__name__, *map(expression_to_tree, expression.args)]
    if isinstance(expression, sympy.NumberSymbol | sympy.core.numbers.Infinity | BooleanAtom):
        return ["Constant", str(expression)]
    return [type(expression).__name__, *map(expression_to_tree, expression.args)]


_CONSTANTS = {str(constant): constant for constant in (sympy.pi, sympy.E, sympy.oo)} | {
    "EulerGamma": sympy.EulerGamma,
    "True": sympy.true,
    "False": sympy.false,
}


def expression_from_tree(tree: Any) -> Any:
    """The sympy expression that :func:`expression_to_tree` wrote."""
    head, *rest = tree
    if head == "Rational":
        top, bottom = int(rest[0], 16), int(rest[1], 16)
        if bottom <= 0:
            raise ArgumentError("expression", bottom, "a positive denominator")
        return sympy.Rational(top, bottom)
    if head == "Symbol":
        return sympy.Symbol(str(rest[0]), **rest[1])
    if head == "Function":
        return sympy.Function(str(rest[0]))(*map(expression_from_tree, rest[1:]))
    if head == "Constant":
        return _CONSTANTS[rest[0]]
    builder = getattr(sympy, str(head), None)
    if not (isinstance(builder, type) and issubclass(builder, sympy.Basic)):
        raise ArgumentError("expression", head, "the name of a sympy class")
    return builder(*map(expression_from_tree, rest))
