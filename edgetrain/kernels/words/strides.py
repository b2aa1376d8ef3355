"""Windows over images in declarations of kernels."""


def windows(dh: str, dw: str) -> str:
    """Checks that windows (oh, kh, sh, ph and the same of columns) keep to an image of h rows.

    Rows and columns of padding at the far side are not among the integers: as many as 16 images are
    allowed. Without these, steps and windows that touch nothing could make loops long.

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
