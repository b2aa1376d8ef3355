"""The control of a step, written once: what Python, a C library and a microcontroller all call.

layout.py has the words of the plan block, through which the step loop finds tapes, data and its
caller; state is in the control block. order.py: which sample comes next; staging.py and filling.py:
raw samples into the arena; rates.py and counters.py: what runs as instructions before and after a
minibatch; minibatch.py and evaluation.py: the loops; digest.py: a checksum of the state;
waiting.py: threads that sleep at a barrier; team.py: those that wait for the next tape. Kernels
named drive_* take addresses: no tape of a Program may hold them.
"""
