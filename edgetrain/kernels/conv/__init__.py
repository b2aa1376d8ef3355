"""Convolutions: plain, compressed rows, and the fast versions over packed panels."""
