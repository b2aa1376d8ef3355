"""The command as a process: what it takes from the system, and limits on it."""
