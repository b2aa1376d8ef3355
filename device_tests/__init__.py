"""Tests under real limits: capped memory, killed processes, other processors, CUDA."""

import os

# When progress lines appear depends on the machine.
os.environ["EDGETRAIN_PROGRESS"] = "0"
