"""Updates: what optimizers keep (states.py), what a rule is (rule.py), the kernels declared of one
(declare.py) and the frame around its arithmetic (frame.py), which lies in optim/; Adafactor, whose
moments are sums of rows and columns, has kernels of its own.
"""
