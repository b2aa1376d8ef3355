"""Spoken digits, personalised to a speaker the net has never heard."""
