"""The exceptions of building weights."""


class RealizationError(ValueError):
    """No weights were found that realise the target; nothing unverified is returned."""
