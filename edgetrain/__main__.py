"""`python -m edgetrain`: the command line, if the `edgetrain` script is not on PATH."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
