"""The functions of a bundle, written as kernels: programs without Python call these.

A bundle is one object for one Program and one processor. layout.py defines the words before the
plan block, and the table of constants that describes a Program; opening.py sets initial values;
rates.py sets learning rate and schedule; running.py handles data, steps, evaluation and
predictions; access.py reads and sets values by number; storing.py keeps the state in two slots of
flash. bundle/ gives each function a C signature.
"""
