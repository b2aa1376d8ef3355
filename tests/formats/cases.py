"""A case for every storage format: numbers, and their bits in memory."""

import numpy as np

# The numbers that kernels compute with, and their contents in memory as integers.
FORMAT_CASES: dict[str, tuple[np.ndarray, list[int]]] = {
    "f64": (np.float64([1.0, -0.5]), [0x3FF0_0000_0000_0000, 0xBFE0_0000_0000_0000]),
    "f32": (np.float32([1.0, -0.1, np.inf]), [0x3F800000, 0xBDCCCCCD, 0x7F800000]),
    "f16": (  # the third is a tie between two neighbours, the fifth too large
        np.float32([1.0, -0.1, 1 + 2**-11, 1 + 3 * 2**-11, 1e6, 2**-24]),
        [0x3C00, 0xAE66, 0x3C00, 0x3C02, 0x7C00, 0x0001],
    ),
    "bf16": (  # ties to even, exactly float32's range, and its subnormals
        np.float32([1.0, -0.1, 1 + 2**-8, 1 + 3 * 2**-8, 1e38, 3.4e38, 2**-140, -np.inf]),
        [0x3F80, 0xBDCD, 0x3F80, 0x3F82, 0x7E96, 0x7F80, 0x0000, 0xFF80],
    ),
    "i64": (np.int64([-1, 2**40]), [0xFFFF_FFFF_FFFF_FFFF, 2**40]),
    "i32": (np.int64([-1, 2**31 - 1]), [0xFFFFFFFF, 0x7FFFFFFF]),
    "u16": (np.int64([0, 65535]), [0, 0xFFFF]),
    # 127 steps of 2^-3, ties upwards, the scale's byte after 64 elements: 2^(124 - 127)
    "q8": (np.float32([15.875, -1.0, 0.0625, -0.0625]), [127, 248, 1, 0, *[0] * 60, 124]),
    "q8n": (np.float32([0.0, -63.75, 64.0]), [0, 192, 64, *[0] * 61, 127]),
    # frozen weights: multiples of the maximum / 127 (or 7), which follows as fp16 (here 1)
    "g8": (np.float32([127.0, -1.0, 2.5]), [127, 255, 2, *[0] * 61, 0, 0x3C]),
    "g4": (np.float32([7.0, -1.0, *[0] * 30, 3.5]), [0xCF, 0x87, *[0x88] * 30, 0, 0x3C]),
    "u8": (np.int64([0, 255]), [0, 0xFF]),
}
