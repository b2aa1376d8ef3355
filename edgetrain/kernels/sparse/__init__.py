"""The pool of nonzeros."""
