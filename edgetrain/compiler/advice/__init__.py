"""Explanations of plans: memory options, suggestions, estimates and bounds."""
