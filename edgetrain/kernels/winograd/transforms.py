"""The matrices of F(4 x 4, 3 x 3), with points 0, 1, -1, 2, -2 and infinity.

Y = A' [(G w G') o (B' x B)] A; the gradient of w is G' [(A dy A') o (B' x B)] G. Source: Lavin and
Gray 2015, Fast Algorithms for Convolutional Neural Networks, section 4.2.
"""

from ..language.transform import Matrix, two_sided

_B: Matrix = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_G: Matrix = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_A: Matrix = (
    (1, 0, 0, 0),
    (1, 1, 1, 1),
    (1, -1, 1, -1),
    (1, 2, 4, 8),
    (1, -2, 4, -8),
    (0, 0, 0, 1),
)


def _turned(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


# (source, row, column, target, down, across), steps in bytes; see language/transform.py
of_inputs = two_sided("b", _B)  # 6 x 6 pixels -> 6 x 6 points
of_weights = two_sided("g", _G)  # 3 x 3 taps -> points
to_weights = two_sided("gt", _turned(_G))  # points -> taps
of_slopes = two_sided("a", _A)  # 4 x 4 gradients of outputs -> points
to_outputs = two_sided("at", _turned(_A))  # points -> 4 x 4 outputs
