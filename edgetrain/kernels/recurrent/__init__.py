"""LSTM, GRU and RNN over whole sequences, forward and backward."""
