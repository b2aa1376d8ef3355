"""Windows over images: checks for declarations of kernels, and which windows are inside."""


def windows(dh: str, dw: str) -> str:
    """Checks that windows (oh, kh, sh, ph and the same for columns) stay near an image of h x wd.

    The integers do not include the padding at the far side, so up to 16 times the image's size is
    allowed. Without these checks, strides and windows that touch nothing could make loops long.

    Args:
      dh, dw: expressions of the dilations.
    """
    checks = []
    for size, out, taps, stride, before, apart in (
        ("h", "oh", "kh", "sh", "ph", dh),
        ("wd", "ow", "kw", "sw", "pw", dw),
    ):
        reach = f"({taps}-1)*{apart}"
        checks += [
            f"({out}-1)*{stride} <= 16*({size}+{before}+{reach})",
            f"{stride} <= 16*({size}+{before}+{reach}+1)",
            f"{reach} <= 16*({size}+{before})",
        ]
    return ";".join(checks)


def reach():
    """Inline functions for windows or their elements, `stride` apart from place `start` on.

    first_inside(at, stride): the first one that is not before place 0; end_inside(at, stride, size,
    count): one past the last of `count` that is before place `size`.
    """
    from .inlining import inline
    from .prim import div

    @inline
    def first_inside(start, stride):
        return 0 if start >= 0 else div(stride - 1 - start, stride)

    @inline
    def end_inside(start, stride, size, count):
        last = size - 1 - start
        return 0 if last < 0 else min(count, div(last, stride) + 1)

    return first_inside, end_inside
