"""A case, or several, of every optimizer and schedule: what is held against twins and torch."""

from edgetrain.optim import SGD, Adam, AdamW, Optimizer, Schedule

OPTIMIZER_CASES: dict[str, Optimizer] = {
    "sgd": SGD(lr=0.1),
    "sgd-momentum": SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd-dampening": SGD(lr=0.1, momentum=0.9, dampening=0.5),
    "sgd-nesterov": SGD(lr=0.1, momentum=0.8, nesterov=True),
    "adam": Adam(lr=0.01),
    "adam-decay": Adam(lr=0.01, beta1=0.8, beta2=0.95, weight_decay=0.1),
    "adamw": AdamW(lr=0.01),
}
TOTAL = 1000
SCHEDULE_CASES: dict[str, Schedule] = {
    "constant": Schedule("constant", warmup_steps=5),
    "step": Schedule("step", 5, step_size=7, gamma=0.97),
    "cosine": Schedule("cosine", 5, total_steps=TOTAL),
}
