"""The demo: a small convolutional net learns the embedded digits within 256 KiB."""
