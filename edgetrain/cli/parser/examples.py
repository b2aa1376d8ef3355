"""Examples at the end of each command's help."""

EXAMPLES = {
    "demo": ("edgetrain demo", "edgetrain demo --budget 150KB --epochs 5 --out runs/demo"),
    "plan": (
        "edgetrain plan model.onnx --budget 256KiB",
        "edgetrain plan model.onnx --budget 2MB --optimizer adam --precision fp16 --explain",
        "edgetrain plan model.onnx --train 'head.*' --report plan.html",
    ),
    "advise": (
        "edgetrain advise model.onnx --budget 1MB",
        "edgetrain advise model.onnx --budget 64KiB --minibatch 16 --optimizer adam --json",
    ),
    "compile": (
        "edgetrain compile model.onnx --budget 256KiB --minibatch 32 -o model.edge",
        "edgetrain compile model.onnx --loss mse --target cortex-m7 -o model.edge",
    ),
    "bundle": (
        "edgetrain bundle model.edge -o net",
        "edgetrain bundle model.edge --data digits --size -o net",
    ),
    "serve": (
        "edgetrain serve model.edge --open",
        "edgetrain serve model.edge --data dir:photos --port 8080",
        "edgetrain serve model.edge --data csv:sensor.csv --label class",
    ),
    "train": (
        "edgetrain train model.onnx --data npz:train.npz --epochs 10 --budget 1MB",
        "edgetrain train model.onnx --data dir:photos --validation 0.2 --epochs 30 --patience 3 "
        "--keep-best",
        "edgetrain train model.edge --data csv:sensor.csv --label class --epochs 5 --out runs/a",
        "edgetrain train model.onnx --data npz:normal.npz --loss mse --target-input x --epochs 20",
        "edgetrain train --resume runs/a --data csv:sensor.csv --label class --epochs 10",
    ),
    "find-lr": (
        "edgetrain find-lr model.onnx --data npz:train.npz --budget 1MB",
        "edgetrain find-lr model.edge --data digits --start-lr 1e-4 --end-lr 1 --picture lr.svg",
    ),
    "eval": (
        "edgetrain eval runs/a --data npz:test.npz --metrics f1,confusion",
        "edgetrain eval runs/a --data dir:photos --split train --best",
    ),
    "export": (
        "edgetrain export runs/a -o trained.onnx",
        "edgetrain export runs/a --best -o best.onnx",
    ),
    "parity": (
        "edgetrain parity model.onnx",
        "edgetrain parity model.onnx --loss mse --optimizer adamw --steps 3",
    ),
    "migrate": (
        "edgetrain migrate runs/a",
        "edgetrain migrate runs/a model.onnx --out runs/a-new",
    ),
    "inspect": ("edgetrain inspect model.onnx", "edgetrain inspect runs/a/step-00000100.ckpt"),
    "data": ("edgetrain data dir:photos", "edgetrain data csv:sensor.csv model.onnx --label class"),
    "ops": ("edgetrain ops",),
    "doctor": ("edgetrain doctor",),
    "warm": ("edgetrain warm model.onnx --precision fp16", "edgetrain warm --all"),
    "completion": (
        'eval "$(edgetrain completion bash)"',
        "edgetrain completion fish > ~/.config/fish/completions/edgetrain.fish",
    ),
}


def epilog(command: str, *, every: bool = True) -> str:
    """The end of a command's help: all its examples, or only the first."""
    lines = EXAMPLES[command][: None if every else 1]
    return "\n".join([f"example{'s' if len(lines) > 1 else ''}:", *(f"  {x}" for x in lines)])
