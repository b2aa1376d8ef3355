"""Pictures and pages that commands draw; lines of text are in `edgetrain.screen`."""
