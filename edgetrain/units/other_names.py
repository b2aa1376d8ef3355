"""Option names in other tools, and the Python function of each option; hints.py reads them for
errors."""

# Name in other tools -> name in edgetrain, without dashes.
ELSEWHERE = {
    "batch_size": "minibatch", "batch": "minibatch", "bs": "minibatch",
    "train_batch_size": "minibatch", "per_device_train_batch_size": "microbatch",
    "micro_batch_size": "microbatch", "gradient_accumulation_steps": "microbatch",
    "learning_rate": "lr", "rate": "lr", "epoch": "epochs", "num_epochs": "epochs",
    "num_train_epochs": "epochs", "n_epochs": "epochs", "max_steps": "steps",
    "num_steps": "steps", "iterations": "steps", "optim": "optimizer", "opt": "optimizer",
    "criterion": "loss", "loss_fn": "loss", "wd": "weight_decay", "l2": "weight_decay",
    "dataset": "data", "train_data": "data", "input": "data", "x": "data",
    "val": "validation", "val_data": "validation", "validation_data": "validation",
    "validation_split": "validation", "test": "validation", "test_data": "validation",
    "output_dir": "out", "outdir": "out", "logdir": "out", "save_dir": "out", "dir": "out",
    "checkpoint": "resume", "ckpt": "resume", "resume_from": "resume", "restore": "resume",
    "scheduler": "lr_schedule", "lr_scheduler": "lr_schedule",
    "lr_scheduler_type": "lr_schedule", "schedule": "lr_schedule", "warmup": "warmup_steps",
    "grad_clip": "max_grad_norm", "clip_grad": "max_grad_norm", "clip": "max_grad_norm",
    "gradient_clip_val": "max_grad_norm", "clip_grad_norm": "max_grad_norm",
    "memory": "budget", "mem": "budget", "ram": "budget", "max_memory": "budget",
    "dtype": "precision", "fp16": "precision", "half": "precision", "amp": "precision",
    "sparsity": "density", "num_workers": "threads", "workers": "threads", "jobs": "threads",
    "num_threads": "threads", "early_stopping": "patience", "random_state": "seed",
    "random_seed": "seed", "class_weight": "class_weights", "metric": "metrics",
    "save_best": "keep_best", "drop_last": "keep_last", "save_every": "save_steps",
    "smoothing": "label_smoothing", "shape": "dim", "dims": "dim", "dim": "dims",
    "trainable": "train", "frozen": "freeze", "augmentation": "augment", "beta_1": "beta1",
    "beta_2": "beta2", "betas": "beta1", "epsilon": "eps", "acc": "accuracy", "val_loss": "loss",
    "crossentropy": "cross_entropy", "nll": "cross_entropy", "nllloss": "cross_entropy",
    "nll_loss": "cross_entropy", "crossentropyloss": "cross_entropy",
    "categorical_crossentropy": "cross_entropy", "categoricalcrossentropy": "cross_entropy",
    "sparse_categorical_crossentropy": "cross_entropy",
    "sparsecategoricalcrossentropy": "cross_entropy", "binary_crossentropy": "bce_with_logits",
    "binarycrossentropy": "bce_with_logits", "binary_cross_entropy": "bce_with_logits",
    "binary_cross_entropy_with_logits": "bce_with_logits", "bce": "bce_with_logits",
    "bceloss": "bce_with_logits", "bcewithlogitsloss": "bce_with_logits", "mae": "l1",
    "mean_absolute_error": "l1", "meanabsoluteerror": "l1", "l1loss": "l1", "l1_loss": "l1",
    "mean_squared_error": "mse", "meansquarederror": "mse", "mseloss": "mse", "mse_loss": "mse",
    "smooth_l1": "huber", "smoothl1loss": "huber", "smooth_l1_loss": "huber",
    "evaluate": "eval", "fit": "train", "show": "inspect", "info": "inspect", "build": "compile",
    "val_accuracy": "accuracy", "val_acc": "accuracy", "f1_score": "f1", "ppl": "perplexity",
}  # fmt: skip

# The Python function that takes an option.
PLACES = {
    "minibatch": "compile", "microbatch": "compile", "loss": "compile", "optimizer": "compile",
    "precision": "compile", "budget": "compile", "density": "compile", "freeze": "compile",
    "train": "compile", "threads": "Trainer", "seed": "compile", "max_grad_norm": "compile",
    "lr": "Trainer", "lr_schedule": "Trainer", "validation": "Trainer", "data": "Trainer",
    "out": "Trainer", "metrics": "Trainer", "callbacks": "Trainer", "keep_last": "Trainer",
    "save_steps": "Trainer", "epochs": "fit", "steps": "fit", "evaluate": "fit",
}  # fmt: skip
SPELT = {"lr_schedule": "schedule"}  # in Python
