"""Updates: what optimizers keep (states.py), how one is declared (declare.py) and the frame around
its arithmetic (frame.py), which lies in optim/; Adafactor, whose moments are sums of rows and
columns, has kernels of its own.
"""
