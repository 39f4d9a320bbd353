"""The one table of tolerances: relative unless its name says otherwise, each with its reason.

Where arithmetic is exact (counts, powers of two, ties) tests use ``==`` and nothing from here.
"""

RTOL = {
    # float64 against float64: a few hundred roundings of 1e-16 each.
    "float64": 1e-12,
    # float32 and half-precision input, summed in float32 over blocks: 5e-7 is the worst we could
    # provoke (equal entries, which all round the same way), and 1e-6 is what we promise.
    "norm": 1e-6,
    # The same samples in other batches or on other ranks: sums in another order, and a spread
    # from sums of squares, which loses up to (mean / deviation)² roundings.
    "merge": 1e-9,
    # Order statistics read off bins that are 10**(1/256) wide: the middle is within 0.45 %.
    "quantile": 5e-3,
    # A midpoint sum over a grid, whose error is the cells that the staircase cuts: ~2 / cells.
    "grid": 2e-2,
    # A float64 network on other batch sizes: convolutions sum in another order.
    "batch64": 1e-9,
    # The same in float32: 1.3e-6 was measured between batch sizes on a ResNet-18.
    "batch32": 1e-5,
    # Two results that were each rounded to bfloat16's eight bits, once or twice.
    "bfloat16": 1e-2,
    # A rate near its zero: a difference of cosines loses the digits that it cancels.
    "sum64": 1e-9,
    # Float64 weights after a few dozen optimizer steps in another order of sums: each step
    # multiplies the rounding of the last, and 1e-12 is the worst that was seen.
    "steps64": 1e-9,
    # A text in one piece or token by token with a cache: other shapes, other orders of sums, and
    # start="identity" on top of it, all in float32.
    "cached": 1e-5,
    # A network after `attach(..., start="identity")`: DESIGN promises 1e-6, because a gate that is
    # divided by its first value may round once at every step.
    "identity": 1e-6,
    # The difference of two float64 passes whose inputs differ by a thousandth: three digits cancel
    # at the first step, and a few more where the perturbation shrinks.
    "growth64": 1e-9,
    # A central difference quotient over 1e-6 in float64: what cancels leaves 1e-10 of the values,
    # and a kink that the quotient steps over changes a few entries by some of their size.
    "quotient64": 1e-6,
}
