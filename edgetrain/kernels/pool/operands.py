"""Operands of pooling over windows; global pooling is one window.

x [n, c, h, wd], y [n, c, oh, ow], contiguous; ph, pw are the top and left padding.
"""

from ..language.strides import windows

SIZES = "n c h wd oh ow kh kw sh sw ph pw"
X, Y = "[n*c*h*wd]", "[n*c*oh*ow]"
CHECK = "min(n, c, h, wd, oh, ow) > 0;min(ph, pw) >= 0;min(kh, kw, sh, sw) > 0"
DILATED_CHECK = f"{CHECK};min(dh, dw) > 0;{windows('dh', 'dw')}"
WORK = "n*c*oh*ow*kh*kw"
BACKWARD_WORK = f"{WORK} + n*c*h*kh"
