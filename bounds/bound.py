"""A bound: a number with the statement, the hypotheses and the model that make it one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import sympy

from bounds.arithmetic import Ball, integer_text, log2_text, parse_integer, rational_text
from bounds.errors import ArgumentError, ModelMismatchError
from bounds.expressions import expression_from_tree, expression_to_tree
from bounds.model import Model

Kind = Literal["lower", "upper", "exact"]
Status = Literal["proved", "certified", "heuristic", "claim", "vacuous"]
Value: TypeAlias = int | Fraction | Ball | sympy.Expr
Parameter: TypeAlias = int | Fraction | str | None

_IN_MODEL = {"r", "values"}
"""Parameters that the model compares: they may differ where one model covers the other."""

_KINDS = ("lower", "upper", "exact")
_STATUSES = ("proved", "certified", "heuristic", "claim", "vacuous")

try:
    VERSION = version("attention-bounds")
except PackageNotFoundError:  # the sources were put on the path without being installed
    VERSION = "not installed"


@dataclass(frozen=True, kw_only=True)
class Bound:
    r"""A bound on ``quantity``, in the words of the theorem and as a number.

    ``value``: an exact ``int`` or ``Fraction``, a sympy number, or a certified
    :class:`~bounds.arithmetic.Ball`. ``kind``: ``"lower"``, ``"upper"`` or ``"exact"``.
    ``status``: ``"proved"`` (a theorem, its value exact or enclosed), ``"certified"`` (computed
    for the object at hand, with an error bound), ``"heuristic"``, ``"claim"`` (recorded from a
    paper), ``"vacuous"`` (true, and says nothing). ``sentence`` holds ``{value}`` where the value
    goes. ``source`` is ``[key, Theorem n]``, resolving in ``docs/references.md``.

    >>> from bounds import min_heads
    >>> bound = min_heads(16, 4, "1/10")
    >>> bound.value, bound.kind, bound.status
    (27, 'lower', 'proved')
    >>> Bound.from_json(bound.to_json()) == bound
    True
    """

    quantity: str
    value: Value
    kind: Kind
    status: Status
    sentence: str
    statement: sympy.Basic
    hypotheses: tuple[str, ...]
    model: Model
    source: str
    parameters: Mapping[str, Parameter] = field(hash=False)
    package_version: str = VERSION

    def __post_init__(self) -> None:
        if not isinstance(self.quantity, str):
            raise ArgumentError("quantity", self.quantity, "a text")
        if isinstance(self.value, bool) or not isinstance(
            self.value, int | Fraction | Ball | sympy.Expr
        ):
            raise ArgumentError("value", self.value, "an int, Fraction, Ball or sympy number")
        if isinstance(self.value, sympy.Expr) and not (self.value.is_number and self.value.is_real):
            raise ArgumentError("value", self.value, "a real sympy number")
        if self.kind not in _KINDS:
            raise ArgumentError("kind", self.kind, f"one of {_KINDS}")
        if self.status not in _STATUSES:
            raise ArgumentError("status", self.status, f"one of {_STATUSES}")
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"parameters": dict(self.parameters)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"parameters": MappingProxyType(state["parameters"])})

    def applies_to(self, model: Model) -> bool:
        """Whether this bound is one for ``model``: lower bounds pass down, upper bounds pass up."""
        down, up = self.model.covers(model), model.covers(self.model)
        return {"lower": down, "upper": up, "exact": down and up}[self.kind]

    def is_below(self, upper: Bound) -> bool:
        """Whether this lower bound lies below (or at) ``upper``, a bound on the same quantity.

        Raises :class:`~bounds.errors.ModelMismatchError` when the two may not be compared.
        """
        if self.quantity != upper.quantity:
            raise ModelMismatchError(f"{self.quantity} cannot be compared with {upper.quantity}")
        if self.kind == "upper" or upper.kind == "lower":
            raise ModelMismatchError("only a lower bound can be asked to lie below an upper one")
        if not self.model.covers(upper.model):
            raise ModelMismatchError(
                f"the lower bound is for [{self.model}], which does not contain [{upper.model}]"
            )
        for name in sorted(self.parameters.keys() & upper.parameters.keys() - _IN_MODEL):
            if self.parameters[name] != upper.parameters[name]:
                raise ModelMismatchError(
                    f"the bounds are for different {name}: {self.parameters[name]} and "
                    f"{upper.parameters[name]}"
                )
        return bool(_comparable(self.value) <= _comparable(upper.value))

    def value_text(self) -> str:
        """The value for a person: rounded in the sound direction, long integers with their log2."""
        if isinstance(self.value, Ball):
            rounding = {"lower": "down", "upper": "up", "exact": "nearest"}[self.kind]
            return self.value.decimal(10, rounding)
        if isinstance(self.value, int):
            return count_text(self.value)
        return rational_text(self.value) if isinstance(self.value, Fraction) else str(self.value)

    def __str__(self) -> str:
        text = self.sentence.format(value=self.value_text())
        return f"{text} [{self.status}; {self.source.strip('[]')}]"

    def _repr_latex_(self) -> str:
        value = sympy.latex(self.value) if isinstance(self.value, sympy.Basic) else None
        if isinstance(self.value, int):
            value = integer_text(self.value)
        elif isinstance(self.value, Fraction | Ball):
            value = self.value_text()
        relation = {"lower": r"\ge", "upper": r"\le", "exact": "="}[self.kind]
        name = rf"\text{{{self.quantity}}}"
        return rf"$\displaystyle {sympy.latex(self.statement)} \qquad {name} {relation} {value}$"

    def to_json(self) -> str:
        """A JSON text from which :meth:`from_json` restores the bound to the last bit."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        """The bound as JSON-ready data, with the sentence and the rounded value for readers."""
        model = {name: getattr(self.model, name) for name in Model.__dataclass_fields__}
        return {
            "format": "attention-bounds bound 1",
            "quantity": self.quantity,
            "value": _encode(self.value),
            "value_text": self.value_text(),
            "kind": self.kind,
            "status": self.status,
            "sentence": self.sentence,
            "text": str(self),
            "statement": expression_to_tree(self.statement),
            "hypotheses": list(self.hypotheses),
            "model": model,
            "source": self.source,
            "parameters": {name: _encode(value) for name, value in self.parameters.items()},
            "package_version": self.package_version,
        }

    @classmethod
    def from_json(cls, text: str) -> Bound:
        """The bound that :meth:`to_json` wrote; an ``ArgumentError`` for any other text."""
        try:
            data = json.loads(text)
            if data["format"] != "attention-bounds bound 1":
                raise ArgumentError("format", data["format"], "'attention-bounds bound 1'")
            return cls(
                quantity=data["quantity"],
                value=_decode(data["value"]),
                kind=data["kind"],
                status=data["status"],
                sentence=data["sentence"],
                statement=expression_from_tree(data["statement"]),
                hypotheses=tuple(data["hypotheses"]),
                model=Model(**data["model"]),
                source=data["source"],
                parameters={name: _decode(value) for name, value in data["parameters"].items()},
                package_version=data["package_version"],
            )
        except ArgumentError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError) as failure:
            raise ArgumentError(
                "bound", text, f"JSON written by Bound.to_json ({failure!r})"
            ) from None


def count_text(count: int) -> str:
    """An integer for a person: long ones shortened, with their log2."""
    if count < 0:
        return f"-{count_text(-count)}"
    if count < 10**15:
        return str(count)
    digits = integer_text(count)
    shown = digits if len(digits) <= 60 else f"{digits[:12]}…{digits[-12:]}"
    return f"{shown} (about 2^{log2_text(count, 2)})"


def _comparable(value: Value) -> Any:
    return Ball.of(value, 256) if isinstance(value, sympy.Expr) else value


def _encode(value: Value | Parameter) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, int):
        return {"int": integer_text(value)}
    if isinstance(value, Fraction):
        return {"fraction": [integer_text(value.numerator), integer_text(value.denominator)]}
    if isinstance(value, Ball):
        return {"ball": value.exact()}
    return {"sympy": expression_to_tree(value)}


def _decode(data: Any) -> Any:
    if data is None:
        return None
    ((kind, content),) = data.items()
    if kind == "text":
        return str(content)
    if kind == "int":
        return parse_integer(content)
    if kind == "fraction":
        return Fraction(parse_integer(content[0]), parse_integer(content[1]))
    if kind == "ball":
        return Ball.parse(content)
    if kind == "sympy":
        return expression_from_tree(content)
    raise ArgumentError("value", kind, "int, fraction, ball, sympy or text")
