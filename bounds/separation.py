r"""H5: exponential separation at constant relative error, with no condition on weight norms.

The layer of full-rank heads that realises the target is
:func:`constructions.step_profiles.step_profile_layer`; the proof and the comparison with claim P3
are in docs/H5-separation.md.
"""

from __future__ import annotations

from fractions import Fraction

import sympy
from flint import arb

from bounds.arithmetic import certify, exact_integer, exact_rational, to_arb
from bounds.bound import Bound
from bounds.errors import ArgumentError
from bounds.harmonics import Values, check_values
from bounds.head_floor import check_rank, floor_hypotheses, floor_model, layer_text, least_heads
from bounds.profiles import StepProfile
from bounds.spectrum import Spectrum

SOURCE = "[attention-bounds, H5]"

_H, _l = sympy.symbols("H ell", integer=True, positive=True)
_d, _r = sympy.symbols("d r", integer=True, positive=True)
_rho = sympy.Symbol("rho", positive=True)
_eta, _N, _D = sympy.Function("eta"), sympy.Function("N"), sympy.Function("D")

STATEMENT = sympy.Le(
    sympy.Sum(_eta(_l) ** 2 * sympy.Max(0, 1 - _H * _D(_r, _l) / _N(_d, _l)), (_l, 1, sympy.oo)),
    _rho * sympy.Sum(_eta(_l) ** 2, (_l, 1, sympy.oo)),
)


def square_wave(
    d: int, alpha: int | float | str | Fraction, cutoff: int | float | str | Fraction = 3
) -> StepProfile:
    r"""The square wave $\mathrm{sgn}\cos(\omega\sqrt d\,t)$, $\omega^2 = 2\alpha d$, cut off.

    Its steps are at $\pm(2k+1)\pi/(2\omega\sqrt d)$ within $|\sqrt d\,t| \le$ ``cutoff`` and within
    $(-1, 1)$; beyond the last one it stays constant. $O(\sqrt{\alpha d})$ steps of height
    $a_i = \pm1$, an even profile up to its constant. $d \ge 2$; ``alpha``, ``cutoff`` positive.
    Source: [attention-bounds, H5].

    >>> len(square_wave(128, 4).thresholds), len(square_wave(64, 4).thresholds)
    (62, 44)
    """
    d = exact_integer(d, "d", 2)
    rate, reach = exact_rational(alpha, "alpha"), exact_rational(cutoff, "cutoff")
    for name, value in (("alpha", rate), ("cutoff", reach)):
        if value <= 0:
            raise ArgumentError(name, value, "positive")
    # omega sqrt(d) = d sqrt(2 alpha); step k lies within the cutoff iff (2k+1) pi/2 <= c sqrt(2 alpha d)
    slope = d * sympy.sqrt(2 * sympy.Rational(rate.numerator, rate.denominator))

    def count(_: int) -> int | None:
        span = to_arb(reach) * (2 * to_arb(rate) * d).sqrt()
        edge = d * (2 * to_arb(rate)).sqrt()  # |t| < 1
        number = (span.min(edge) / arb.pi() + arb(1) / 2).floor().unique_fmpz()
        return None if number is None else int(number)

    steps = certify(count, "the number of steps")
    if steps == 0:
        raise ArgumentError("alpha", alpha, f"large enough for a step within the cutoff at d = {d}")
    places = [(2 * k + 1) * sympy.pi / (2 * slope) for k in range(steps)]
    falls = [(-1) ** (k + 1) for k in range(steps)]  # the wave falls at the first step right of 0
    return StepProfile(
        [*(-place for place in reversed(places)), *places],
        [*(-fall for fall in reversed(falls)), *falls],
    )


def separation(
    d: int,
    r: int,
    alpha: int | float | str | Fraction,
    relative_error: int | float | str | Fraction,
    *,
    cutoff: int | float | str | Fraction = 3,
    values: Values = "general",
) -> Bound:
    r"""How many rank-$r$ heads a relative error takes on the square wave, whatever their norms.

    The target $f_\psi = \sum_i a_if_{b_i}$ is a sum of biased nearest-neighbour functions, one
    full-rank head each: the parameter ``full_rank_heads`` counts them. The value is the least $H$
    with $\frac12\sum_\ell\eta_\ell^2(1-HD/N)_+ \le \rho\cdot\frac12\sum_{\ell\ge1}\eta_\ell^2$, an
    exact int. The relative error $\rho$ is the error over $\frac12\mathrm{Var}\,\psi$, what the
    best constant profile leaves.

    Hypotheses: $1 \le r \le d-3$, $0 < \rho < 1$. Source: [attention-bounds, H5].

    >>> bound = separation(64, 16, 4, "1/2")
    >>> bound.parameters["full_rank_heads"], bound.value.bit_length() > 100
    (44, True)
    """
    d, r = check_rank(d, r, "H5")
    check_values(values)
    rho = exact_rational(relative_error, "relative_error")
    if not 0 < rho < 1:
        raise ArgumentError("relative_error", relative_error, "strictly between 0 and 1")
    profile = square_wave(d, alpha, cutoff)

    def error(terms: Spectrum) -> arb:
        return to_arb(rho) * terms.energy_tail(0) / 2

    full_rank = len(profile.thresholds)
    return Bound(
        quantity="heads",
        value=least_heads(d, r, values, profile, error),
        kind="lower",
        status="proved",
        sentence=f"every layer of {layer_text(r, values)} with relative error <= {rho} on the square "
        f"wave, d = {d}, which {full_rank} full-rank heads realize exactly, has at least {{value}} "
        "heads, whatever their norms",
        statement=STATEMENT,
        hypotheses=floor_hypotheses(d, r, profile),
        model=floor_model(r, values, profile),
        source=SOURCE,
        parameters={
            "d": d,
            "r": r,
            "alpha": exact_rational(alpha, "alpha"),
            "cutoff": exact_rational(cutoff, "cutoff"),
            "relative_error": rho,
            "values": values,
            "full_rank_heads": full_rank,
        },
    )
