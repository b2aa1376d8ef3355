"""Block formats: 8 bits for values kept until backward, groups of 8 or 4 bits for frozen
weights."""
