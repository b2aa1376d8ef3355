"""Options, each declared once; keyword, flag, help, recipe and documentation follow from that."""

from .option import Option, option

__all__ = ["Option", "option"]
