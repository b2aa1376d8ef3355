"""A case, or several, of every loss: what the engine is held against torch with."""

from edgetrain.losses import Loss

# Loss, and the shape of the output after the batch.
LOSS_CASES: dict[str, tuple[Loss, tuple[int, ...]]] = {
    "cross_entropy": (Loss("cross_entropy"), (4,)),
    "cross_entropy-smoothing": (Loss("cross_entropy", label_smoothing=0.1), (3, 4)),
    "mse": (Loss("mse"), (3, 4)),
    "bce_with_logits": (Loss("bce_with_logits"), (4,)),
}
