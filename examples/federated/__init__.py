"""A federation of three boards, as real processes."""
