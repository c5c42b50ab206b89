"""The exceptions of the package, one for each thing that can go wrong."""


class ArgumentError(ValueError):
    """An argument is of the wrong kind or out of range; the message says which and what is allowed."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        self.name = name
        shown = _shown(value)
        super().__init__(f"{name} = {shown} is not allowed: {name} must be {allowed}")


class HypothesisError(ValueError):
    """A theorem was asked for outside its hypotheses; the message names the hypothesis."""

    def __init__(self, result: str, hypothesis: str, found: str) -> None:
        self.result = result
        self.hypothesis = hypothesis
        super().__init__(f"{result} does not apply: it needs {hypothesis}, but {found}")


class UndecidedError(ArithmeticError):
    """Certified arithmetic could not decide a comparison within its precision limit."""


class ModelMismatchError(ValueError):
    """Two bounds were compared although neither model covers the other."""


def _shown(value: object) -> str:
    """A short text for ``value`` that never fails, however large the value is."""
    try:
        text = repr(value)
    except Exception as failure:  # an integer past the interpreter's digit limit, a broken __repr__
        text = f"<{type(value).__name__}: {failure}>"
    return text if len(text) <= 80 else f"{text[:60]}... ({len(text)} characters)"
