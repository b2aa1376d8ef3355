"""Runs that earlier versions left behind, and what each of them came to: see make.py."""
