r"""How close the best score comes to the others: for independent points, and for orthonormal ones.

Scores are $\langle x_i, y\rangle$ with points and query on the sphere. Proofs in docs/temperature.md.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb

from flint import acb, acb_poly, arb, fmpq

from bounds.gaussians import gaussian_density, gaussian_distribution, line_integral
from bounds.harmonics import density_constant_ball


def gap_density(d: int, context: int, bits: int, shift: arb | None = None) -> arb:
    r"""$h(d,N,s) = N(N-1)\int f(u)^2F(u+s)^{N-2}du$, $s$ = ``shift`` $\ge 0$ (0 when ``None``).

    $f(u) = c_d(1-u^2)^{(d-3)/2}$ on $[-1, 1]$ is the density of a score and $F$ its distribution
    function. $h(d,N,0)$ is the density at 0 of the gap of the two best of $N$ scores, where it is
    largest for $d \ge 3$; at most $Nc_d$.
    """
    s = arb(0) if shift is None else shift
    constant = density_constant_ball(d)
    below = _distribution_of_sine(d)

    def shifted(angle: acb, _: bool) -> acb:
        """In the angle of $u + s$: entire, also where $F$ is."""
        square: acb = (1 - (angle.sin() - s) ** 2) ** (d - 3)
        return square * below(angle) ** (context - 2) * angle.cos()

    def beyond(u: acb, _: bool) -> acb:
        """Where $u + s > 1$ and $F = 1$."""
        return acb((1 - u**2) ** (d - 3))

    tolerance = arb(2) ** -bits
    everywhere = bool(s >= 2)  # then F(u + s) = 1 for every u
    edge = arb(-1) if everywhere else 1 - s
    integral = acb.integral(beyond, edge, 1, rel_tol=tolerance, abs_tol=tolerance).real
    if not everywhere:
        first = (s - 1).asin()
        integral += acb.integral(shifted, first, arb.pi() / 2, rel_tol=tolerance).real
    return context * (context - 1) * constant**2 * integral


def tie_chance(d: int, context: int, bits: int, gap: arb) -> arb:
    r"""At least the chance that two given orthonormal points are the best two, at a gap of their scores.

    It rises with the gap. In Gaussian terms it is $\Pr(Z \le xR)$, $Z = \sqrt2\max_{i\le N-2}g_i - g$,
    $R \sim \chi_{d-1}$, $x = t/\sqrt{1-t^2}$, $t = s/\sqrt2$, at most
    $\Pr(Z \le x\rho) + \Pr(R > \rho)$. At most 1.
    """
    t = gap / arb(2).sqrt()
    if context == 2 or not t < 1:
        return arb(1)
    radius = (arb(d - 1) + 6 * (2 * arb(d - 1)).sqrt() + 12).sqrt()
    reach = t / (1 - t**2).sqrt() * radius

    def integrand(g: arb) -> arb:
        return gaussian_density(g) * gaussian_distribution((g + reach) / arb(2).sqrt()) ** (
            context - 2
        )

    tail = (radius**2 / 2).gamma_upper(arb(d - 1) / 2, regularized=1)
    return (line_integral(integrand, fmpq(context, 2), bits, 1) + tail).min(arb(1))


def _distribution_of_sine(d: int) -> Callable[[acb], acb]:
    r"""$\theta \mapsto F(\sin\theta) = \frac12 + c_d\int_0^\theta\cos^{d-2}$, an entire function.

    $\cos^k = 2^{-k}\sum_i\binom ki\cos((k-2i)\theta)$, in powers of $w = e^{2i\theta}$.
    """
    k = d - 2
    parity = k % 2
    waves = [j for j in range(k % 2, k + 1, 2) if j > 0]
    weights = [arb(2 * comb(k, (k - j) // 2)) / j / arb(2) ** k for j in waves]
    series = acb_poly(weights if parity else [0, *weights])
    linear = arb(0) if parity else arb(comb(k, k // 2)) / arb(2) ** k
    constant = density_constant_ball(d)

    def distribution(angle: acb) -> acb:
        turn = (acb(0, 1) * angle).exp()
        up, down = series(turn**2), series(turn**-2)
        if parity:
            up, down = turn * up, down / turn
        return acb(1) / 2 + constant * ((up - down) / acb(0, 2) + linear * angle)

    return distribution
