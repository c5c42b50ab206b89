"""Independent oracles: they share no code with ``bounds`` or ``constructions``."""
