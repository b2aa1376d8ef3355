"""Updates: states of optimizers (states.py), rules (rule.py), the kernels declared for a rule
(declare.py), and the frame around its arithmetic (frame.py); the arithmetic itself is in optim/.
Adafactor, whose moments are sums of rows and columns, has kernels of its own."""
