"""Commands that device_tests start react to signals, however the suite was started."""

from tests.heeded import heed_signals

heed_signals()
