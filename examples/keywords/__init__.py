"""Spoken digits, personalised for a speaker the net has never heard."""
