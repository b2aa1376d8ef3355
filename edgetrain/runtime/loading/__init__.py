"""Loads a Program file into memory and checks everything before it runs."""
