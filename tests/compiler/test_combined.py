"""Combined options: the same bits in every plan and for any thread count, with whole files."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import edgetrain as et
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity
from tests.quick import slow_between

from .nets import conv_bn_relu_conv

pytestmark = pytest.mark.usefixtures("quick_planner", "every_rung")

WORDS, TIME, WIDTH = 600, 66, 12


class Sequence(nn.Module):
    """Words in, words out, over time."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cells = nn.Embedding(WORDS, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.drop, self.inner = nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(self.drop(self.cells(self.table(x))[0]))))


class Attending(nn.Module):
    """Words in, words out; each attends to earlier ones. More keys than one block holds."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(WORDS, 16), nn.LayerNorm(16)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(16, 16) for _ in range(3))
        self.out, self.head = nn.Linear(16, 16), nn.Linear(16, WORDS, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        x = self.table(x)
        b, t, width = x.shape
        heads = [
            part(self.norm(x)).view(b, t, 4, width // 4).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        ]
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.head(x + self.out(y.transpose(1, 2).reshape(b, t, width)))


class Pair(nn.Module):
    """Two inputs, a table that is read twice, a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.more = nn.Embedding(WORDS, 16), nn.Embedding(WORDS, 16)
        self.mix, self.head = nn.Linear(16, 16), nn.Linear(16, 7)

    def forward(self, a, b):
        x = self.words(a) * self.more(b) + self.words(b)
        return self.head(torch.tanh(self.mix(torch.tanh(self.mix(x)))).mean(1))


class Images(nn.Module):
    """Batch-norms, dropout and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm, self.other, self.drop = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.Dropout(0.2)
        self.inner, self.head = nn.Linear(8, 24), nn.Linear(24, 5)

    def forward(self, x):
        x = torch.relu(self.norm(self.a(x)))
        x = self.drop(x + nn.functional.hardswish(self.other(self.b(x))))
        return self.head(torch.relu(self.inner(x.mean((2, 3)))))


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(WORDS, shape)


NETS = {
    "sequence": (Sequence, lambda: (_ids(2, TIME),)),
    "attending": (Attending, lambda: (_ids(2, TIME),)),
    "pair": (Pair, lambda: (_ids(2, 5), _ids(2, 5))),
    "images": (Images, lambda: (torch.randn(2, 2, 6, 6),)),
}


@pytest.fixture(scope="module")
def path_of(tmp_path_factory: pytest.TempPathFactory):
    folder, made = tmp_path_factory.mktemp("combined"), {}

    def path(name: str) -> Path:
        if name not in made:
            torch.manual_seed(0)
            module, inputs = NETS[name]
            made[name] = export_torch(module(), inputs(), folder / f"{name}.onnx")
        return made[name]

    return path


SAMPLES = 8
TOGETHER = {
    "segments, saved, fused": ("sequence", {"segments": 16, "saved": "int8", "fused_update": True}),
    "bptt, saved, adapters": (
        "sequence",
        {"bptt": 20, "saved": "int8", "lora": "r=2,targets=inner,head", "frozen": "int8"},
    ),
    "segments, slices, rows": (
        "sequence",
        {"allow": ["slices", "rows"], "segments": 20, "minibatch": 4, "microbatch": 2},
    ),
    "attention, adapters, saved": (
        "attending",
        {
            "allow": ["attention"],
            "lora": "r=2,targets=q_proj,v_proj",
            "frozen": "int8",
            "saved": "int8",
            "microbatch": 4,
        },
    ),
    "attention, slices, fused": (
        "attending",
        {"allow": ["attention", "slices"], "fused_update": True, "model_memory": "int8"},
    ),
    "attention, sparse, fp16": (
        "attending",
        {"allow": ["attention"], "density": 0.5, "precision": "fp16", "loss_scale": 64.0},
    ),
    "adapters, rows, blocks": (
        "pair",
        {
            "lora": "r=2,targets=mix",
            "train": ["words.*"],
            "allow": ["rows"],
            "model_memory": "int8",
            "microbatch": 4,
            "max_grad_norm": 0.5,
        },
    ),
    "adapters, fused, fp16": (
        "pair",
        {
            "lora": "r=2,targets=mix,head",
            "frozen": "int4",
            "precision": "fp16",
            "fused_update": True,
            "loss_scale": 128.0,
            "saved": "int8",
        },
    ),
    "frozen, sparse, saved": (
        "images",
        {"freeze": ["a.*"], "frozen": "int8", "density": 0.5, "saved": "int8"},
    ),
    "adapters, sparse": (
        "images",
        {"lora": "r=2,targets=inner", "train": ["b.*"], "density": 0.5, "frozen": "int4"},
    ),
}


def _options(case: str) -> tuple[str, dict]:
    net, options = TOGETHER[case]
    sizes = {"minibatch": SAMPLES, "microbatch": SAMPLES}
    return net, {"optimizer": et.AdamW(lr=0.01), **sizes, **options}


def _trained(program, out: Path, samples, threads: int) -> dict[str, bytes]:
    """Return the state after some steps."""
    with et.Trainer(program, out=out, threads=threads) as trainer:
        for _ in range(3):
            assert not trainer.step(*samples).skipped
        return {name: array.tobytes() for name, array in trainer.session.state().items()}


def _samples(program, net: str):
    draw, n = np.random.default_rng(1), program.minibatch
    if net == "images":
        return draw.standard_normal((n, 2, 6, 6)).astype(np.float32), draw.integers(0, 5, n)
    if net == "pair":
        inputs = {name: draw.integers(0, WORDS, (n, 5)) for name in program.input_names}
        return inputs, draw.integers(0, 7, n)
    return draw.integers(0, WORDS, (n, TIME)), draw.integers(0, WORDS, (n, TIME))


@pytest.mark.parametrize("case", slow_between(TOGETHER, 2))
def test_choices_together_have_the_same_bits_in_every_plan(path_of, case, tmp_path) -> None:
    net, options = _options(case)
    fast = et.compile(path_of(net), **options)
    least = fast.account["min_budget_nbytes"]
    small = et.compile(path_of(net), budget=least, **options)
    assert small.arena_nbytes == least == sum(small.account["by_kind"].values())
    with pytest.raises(et.BudgetError):
        et.compile(path_of(net), budget=least - 1, **options)
    samples = _samples(fast, net)
    expected = _trained(fast, tmp_path / "fast", samples, 2)
    again = et.load_program(small.save(tmp_path / "small.edge"))
    assert _trained(again, tmp_path / "one", samples, 1) == expected
    assert _trained(again, tmp_path / "two", samples, 2) == expected


@pytest.mark.parametrize("case", TOGETHER)
def test_choices_together_export_what_they_predict(path_of, case, tmp_path) -> None:
    net, options = _options(case)
    program = et.compile(path_of(net), **options)
    x, y = _samples(program, net)
    with et.Trainer(program, out=tmp_path / "run") as trainer:
        trainer.step(x, y)
        path = trainer.export_onnx(tmp_path / "trained.onnx")
        found = None if program.sliced or program.unpredicted else trainer.predict(x)
    run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = x if isinstance(x, dict) else {program.input_names[0]: x}
    kinds = {i.name: np.int64 if "int64" in i.type else np.float32 for i in run.get_inputs()}
    (out,) = run.run(None, {name: array.astype(kinds[name]) for name, array in given.items()})
    assert np.isfinite(out).all()
    if found is not None:
        near = 2e-2 if options.get("precision") == "fp16" else 1e-4
        np.testing.assert_allclose(out, found, rtol=near, atol=near)


PARITY = {
    "saved and fused": ("images", {"saved": "int8", "fused_update": True}),
    "attention, adapters, saved": (
        "attending",
        {"allow": ["attention"], "lora": "r=2,targets=q_proj,v_proj", "saved": "int8"},
    ),
    "adapters and sparse": TOGETHER["adapters, sparse"],
    "adapters by rows": (
        "pair",
        {
            "lora": "r=2,targets=mix",
            "train": ["words.*"],
            "allow": ["rows"],
            "frozen": "int4",
            "model_memory": "int8",
        },
    ),
}


@pytest.mark.parametrize("case", PARITY)
def test_choices_together_equal_torch(path_of, case) -> None:
    net, options = PARITY[case]
    report = parity(path_of(net), steps=2, minibatch=4, **options)
    assert report.ok, report.summary()


REFUSED = {
    "rows and fused": ({"allow": ["rows"], "fused_update": True}, "allow rows: .*fused_update"),
    "fused and clipped": ({"fused_update": True, "max_grad_norm": 1.0}, "max_grad_norm 1"),
    "fused and parts": ({"fused_update": True, "microbatch": 4}, "microbatch 4 is"),
    "fused and fp16": ({"fused_update": True, "precision": "fp16"}, "loss scale.*precision fp16"),
    "adapters of a table": ({"lora": "targets=words"}, "target 'words': no weight"),
    "adapters of a bias": ({"lora": "targets=*.bias"}, "target .*bias': no weight"),
    "adapters, all frozen": (
        {"lora": "targets=mix", "freeze": ["*"]},
        "no parameter is trained",
    ),
    "storage of what is not": ({"frozen": "int8"}, "int8: all weights are trained"),
    "a large loss scale": ({"loss_scale": 2.0**25}, "at most 1.67772e"),
    "segments of no recurrence": ({"segments": 5}, "the model has none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_choices_that_cannot_be_are_refused(path_of, case) -> None:
    options, words = REFUSED[case]
    with pytest.raises(et.EdgetrainError, match=words) as caught:
        et.compile(path_of("pair"), **{"minibatch": SAMPLES, **options})
    assert "\n" not in str(caught.value)


def test_saved_values_that_nobody_rounds_are_refused() -> None:
    model = conv_bn_relu_conv()
    with pytest.raises(et.UsageError, match="saved int8: no saved value .* 64 elements"):
        et.compile(model, minibatch=8, train=["fc.*"], saved="int8")
    assert et.compile(model, minibatch=8, saved="int8").arena_nbytes
