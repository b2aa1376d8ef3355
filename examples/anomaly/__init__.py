"""An autoencoder that learns a machine's vibrations from a stream and reports unusual ones."""
