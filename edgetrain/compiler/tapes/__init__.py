"""From a planned graph to tapes of kernel calls with offsets."""
