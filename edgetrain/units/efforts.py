"""How long plans are searched for: what `--effort` knows."""

QUICK, NORMAL, THOROUGH = "quick", "normal", "thorough"

EFFORTS = {
    QUICK: "a second or less for most models",
    NORMAL: "up to 8 times the search of quick, as long as that pays",
    THOROUGH: "up to 256 times, as long as anything is gained",
}
