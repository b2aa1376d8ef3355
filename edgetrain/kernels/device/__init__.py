"""The functions of a bundle, written as kernels: what a program without Python calls.

A bundle is one object for one Program and one processor. layout.py: the words before the plan
block, and the table of constants that says what a Program needs; opening.py: initial values;
rates.py: learning rate and schedule;
running.py: data, steps, evaluation, predictions; access.py: values by number;
storing.py: the state in two slots of flash. bundle/ gives each a C signature.
"""
