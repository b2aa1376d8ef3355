"""Elementwise kernels: functions of one tensor or two, masks, dropout, copies, random numbers."""
