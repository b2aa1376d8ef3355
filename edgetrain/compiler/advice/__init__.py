"""What is said about plans: the ladder, suggestions, estimates and bounds."""
