"""Under real limits: capped memory, killed processes, other processors, CUDA."""

import os

# When lines for people who wait come depends on the machine.
os.environ["EDGETRAIN_PROGRESS"] = "0"
