"""Runs that earlier versions left unfinished, and the result of each: see make.py."""
