"""The control of a step, written once: Python, a C library and a microcontroller all call it.

layout.py defines the words of the plan block, through which the step loop finds tapes, data and its
caller; its state is in the control block. order.py decides which sample comes next; staging.py and
filling.py copy raw samples into the arena; rates.py and counters.py are instructions that run
before and after a minibatch; minibatch.py and evaluation.py are the loops; digest.py computes a
checksum of the state; waiting.py lets threads sleep at a barrier; team.py keeps threads waiting for
the next tape. Kernels named drive_* take addresses, so no tape of a Program may contain them.
"""
