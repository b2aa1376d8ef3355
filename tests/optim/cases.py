"""One or more cases of every optimizer and schedule, for comparison with twins and torch."""

from edgetrain.optim import (
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Adan,
    Lamb,
    Lion,
    Optimizer,
    RMSprop,
    Schedule,
)

OPTIMIZER_CASES: dict[str, Optimizer] = {
    "sgd": SGD(lr=0.1),
    "sgd-momentum": SGD(lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd-dampening": SGD(lr=0.1, momentum=0.9, dampening=0.5),
    "sgd-nesterov": SGD(lr=0.1, momentum=0.8, nesterov=True),
    "adam": Adam(lr=0.01),
    "adam-decay": Adam(lr=0.01, beta1=0.8, beta2=0.95, weight_decay=0.1),
    "adamw": AdamW(lr=0.01),
    "adan": Adan(lr=0.01),
    "adan-decay": Adan(lr=0.02, beta1=0.9, beta2=0.8, beta3=0.95, weight_decay=0.1),
    "rmsprop": RMSprop(lr=0.01),
    "rmsprop-centered": RMSprop(lr=0.01, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.1),
    "adagrad": Adagrad(lr=0.1),
    "adagrad-decay": Adagrad(lr=0.1, lr_decay=0.2, weight_decay=0.1),
    "lamb": Lamb(lr=0.01),
    "lamb-plain": Lamb(lr=0.02, beta1=0.8, beta2=0.95, weight_decay=0.0),
    "lion": Lion(lr=0.01),
    "lion-decay": Lion(lr=0.01, beta1=0.7, beta2=0.8, weight_decay=0.1),
    "adafactor": Adafactor(lr=0.05),
    "adafactor-clip": Adafactor(lr=0.9, beta2_decay=-0.5, eps2=0.2, clip=1.5, weight_decay=0.1),
}
# One case per optimizer, at rates that learn the digits in two epochs.
DIGITS: dict[str, Optimizer] = {
    "sgd": SGD(lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4),
    "adam": Adam(lr=3e-3),
    "adamw": AdamW(lr=3e-3),
    "adan": Adan(lr=3e-3),
    "rmsprop": RMSprop(lr=2e-3, momentum=0.5, centered=True),
    "adagrad": Adagrad(lr=0.02),
    "lamb": Lamb(lr=0.02),
    "lion": Lion(lr=1e-3),
    "adafactor": Adafactor(lr=0.02),
}
TOTAL = 1000
SCHEDULE_CASES: dict[str, Schedule] = {
    "constant": Schedule("constant", warmup_steps=5),
    "step": Schedule("step", 5, step_size=7, gamma=0.97),
    "cosine": Schedule("cosine", 5, total_steps=TOTAL),
    "multistep": Schedule("multistep", 5, milestones=(4, 100, 500), gamma=0.3),
    "exponential": Schedule("exponential", 5, gamma=0.99),
    "inverse_sqrt": Schedule("inverse_sqrt", 5),
    "inverse_sqrt-slow": Schedule("inverse_sqrt", timescale=100),
    "one_cycle": Schedule("one_cycle", total_steps=TOTAL),
    "one_cycle-late": Schedule("one_cycle", 0, TOTAL, pct_start=0.6, div_factor=3.0),
    "polynomial": Schedule("polynomial", 5, total_steps=TOTAL, power=3, end=0.1),
    "polynomial-late": Schedule("polynomial", total_steps=TOTAL),
    "plateau": Schedule("plateau", 5, window=2, patience=1, gamma=0.5),
    "plateau-cooldown": Schedule(
        "plateau", window=3, patience=0, gamma=0.5, threshold=0.1, cooldown=2, min_lr=0.02
    ),
}
