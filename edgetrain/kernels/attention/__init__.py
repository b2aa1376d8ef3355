"""Attention by blocks of keys: softmax(scale * q k^T + masks) v without the matrix of scores."""
