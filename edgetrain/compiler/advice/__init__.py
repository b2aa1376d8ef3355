"""Explanations of plans: the ladder, suggestions, estimates and bounds."""
