"""Files, untrusted: their kind, size and heads are checked before they are believed."""
