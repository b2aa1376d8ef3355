"""An autoencoder that learns a machine from the stream, and says what is strange."""
