"""One file for each kind of source; registry.py lists them."""
