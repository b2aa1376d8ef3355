"""Worked examples; a test runs each of them."""
