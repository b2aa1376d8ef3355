"""Untrusted files: type, size and header are checked first."""
