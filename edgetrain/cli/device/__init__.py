"""The command as a process: its memory, and limits on it."""
