"""One or more cases of every loss, for comparison with torch."""

import dataclasses

from edgetrain.losses import Loss

# Loss, and the output's shape without the batch.
LOSS_CASES: dict[str, tuple[Loss, tuple[int, ...]]] = {
    "cross_entropy": (Loss("cross_entropy"), (4,)),
    "cross_entropy-smoothing": (Loss("cross_entropy", label_smoothing=0.1), (3, 4)),
    "cross_entropy-weights": (Loss("cross_entropy", class_weights=(1.0, 0.5, 0.0, 3.0)), (4,)),
    "cross_entropy-both": (
        Loss("cross_entropy", class_weights=(1.0, 0.5, 2.0, 3.0), label_smoothing=0.2),
        (3, 4),
    ),
    "l1": (Loss("l1"), (4,)),
    "huber": (Loss("huber"), (3, 4)),
    "huber-narrow": (Loss("huber", delta=0.3), (4,)),
    "bce_with_logits-positives": (Loss("bce_with_logits", pos_weight=3.5), (4,)),
    "quantile": (Loss("quantile"), (4,)),
    "quantile-interval": (Loss("quantile", quantiles=(0.1, 0.5, 0.9)), (2, 3)),
    "focal": (Loss("focal"), (4,)),
    "focal-flat": (Loss("focal", focal_alpha=0.6, focal_gamma=0.5), (3, 4)),
    "cosine": (Loss("cosine"), (4,)),
    "cosine-positions": (Loss("cosine"), (3, 4)),
    "triplet": (Loss("triplet"), (3, 4)),
    "triplet-swap": (Loss("triplet", margin=0.3, swap=True), (3, 4)),
    "info_nce": (Loss("info_nce"), (2, 4)),
    "info_nce-all": (Loss("info_nce", temperature=0.5, all_pairs=True), (2, 4)),
    "dice": (Loss("dice", class_axis=1), (3, 4)),
    "dice-last": (Loss("dice", dice_smooth=0.1), (2, 3, 4)),
    "dice-binary": (Loss("dice", class_axis=1), (1, 4)),
    "dice-multilabel": (Loss("dice", multilabel=True), (3, 4)),
    "ctc": (Loss("ctc"), (6, 4)),
    "ctc-lengths": (
        Loss("ctc", blank=3, label_length=3, input_lengths=True, label_sum=True),
        (8, 4),
    ),
    "output": (Loss("output"), (4,)),
    "mse": (Loss("mse"), (3, 4)),
    "bce_with_logits": (Loss("bce_with_logits"), (4,)),
}
# Each case again, with sample weights.
LOSS_CASES |= {
    f"{name}-samples": (dataclasses.replace(loss, sample_weights=True), shape)
    for name, (loss, shape) in LOSS_CASES.items()
}
