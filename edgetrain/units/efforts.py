"""The values of `--effort`: how long to search for plans, counted in work, not in time."""

QUICK, NORMAL, THOROUGH = "quick", "normal", "thorough"

EFFORTS = {
    QUICK: "a second or less for most models",
    NORMAL: "up to 8 times as long, if it helps",
    THOROUGH: "up to 256 times as long, if plans keep improving",
}
