"""Machine code that is kept: the sources it follows from, where it lies, how it is loaded."""
