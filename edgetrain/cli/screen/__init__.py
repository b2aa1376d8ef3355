"""Pictures and pages written by commands; text output is in `edgetrain.screen`."""
