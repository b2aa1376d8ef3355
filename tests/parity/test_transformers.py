"""Classes of the transformers package with random weights: exported, compared, trained for a step.

Sizes are small here. Everything specific to a model (ratios of heads, activations, norms, masks,
tied tables) follows the configurations in use.
"""

import warnings

import numpy as np
import pytest
import torch

import edgetrain as et
from edgetrain.api import make_options
from edgetrain.compiler.compilation import Compilation
from edgetrain.compiler.pipeline import build_graphs
from edgetrain.exporters import export_torch
from edgetrain.exporters.parity import parity

transformers = pytest.importorskip(
    "transformers", minversion="5.0", reason="transformers 5 or later is not installed"
)

IDS = torch.randint(0, 90, (2, 12), generator=torch.Generator().manual_seed(0))
WORDS = {"vocab_size": 96, "bos_token_id": 1, "eos_token_id": 2}
# Name -> class and configuration; its last line differs from the published one.
CLASSES = {
    # SmolLM2-135M: 30 layers, 576 wide, 1536 inside, 9 heads over 3, 49,152 words, tied.
    "smollm2": ("LlamaForCausalLM", "LlamaConfig", {
        "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_act": "silu",
        "rope_theta": 100000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "hidden_size": 72, "intermediate_size": 192, "num_hidden_layers": 2, **WORDS,
    }),
    # GPT-2: 12 layers, 768 wide, 12 heads, 50,257 words, tied; weights are [in, out].
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {
        "n_head": 4, "n_layer": 2, "n_embd": 48, "n_positions": 32, "activation_function":
        "gelu_new", **WORDS,
    }),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 48,
        "intermediate_size": 96, "num_hidden_layers": 2, **WORDS,
    }),
    # DistilBERT: 6 layers, 768 wide, 12 heads, 3072 inside.
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", {
        "n_layers": 2, "dim": 48, "hidden_dim": 96, "n_heads": 4, "vocab_size": 96,
        "max_position_embeddings": 32, "num_labels": 3,
    }),
    "bert": ("BertForSequenceClassification", "BertConfig", {
        "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 96,
        "num_attention_heads": 4, "vocab_size": 96, "max_position_embeddings": 32, "num_labels": 3,
    }),
    # Positions are counted over non-padding words.
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", {
        "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 96,
        "num_attention_heads": 4, "vocab_size": 96, "max_position_embeddings": 40, "num_labels": 3,
    }),
    # ViT-small: 12 layers, 384 wide, 6 heads, 1536 inside, patches of 16.
    "vit": ("ViTForImageClassification", "ViTConfig", {
        "num_hidden_layers": 2, "hidden_size": 48, "intermediate_size": 192,
        "num_attention_heads": 6, "image_size": 32, "patch_size": 16, "num_labels": 5,
    }),
}  # fmt: skip
FAST = ("smollm2",)
# Modules that get adapters, as in peft's own table.
TARGETS = {
    "smollm2": "q_proj,v_proj", "gpt2": "c_attn", "qwen2": "q_proj,v_proj",
    "distilbert": "q_lin,v_lin", "bert": "query,value", "roberta": "query,value",
    "vit": "q_proj,v_proj",
}  # fmt: skip


class Logits(torch.nn.Module):
    """One input, one output."""

    def __init__(self, body, name):
        super().__init__()
        self.body, self.input = body, name

    def forward(self, x):
        return self.body(**{self.input: x}).logits


def made(name):
    """The module without dropout, and samples for it."""
    kind, config, fields = CLASSES[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = getattr(transformers, kind)(getattr(transformers, config)(**fields))
    body.config.use_cache = False
    for part in body.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    for part in body.modules():
        for field in ("attention_dropout", "dropout_p"):
            if isinstance(getattr(part, field, None), float):
                setattr(part, field, 0.0)
    pictures = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    if name == "vit":
        return Logits(body, "pixel_values"), pictures
    return Logits(body, "input_ids"), IDS


@pytest.fixture(
    scope="module",
    params=[n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in CLASSES],
)
def exported(request, tmp_path_factory):
    module, x = made(request.param)
    path = tmp_path_factory.mktemp("transformers") / f"{request.param}.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_torch(module, (x,), path)
    return request.param, module, x, et.load_onnx(path)


def test_transformer_has_the_gradients_of_its_own_module(exported):
    _, module, x, model = exported
    module.train()
    logits = module(x)
    target = torch.arange(logits[..., 0].numel()).reshape(logits.shape[:-1]) % 3
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.ravel())
    module.zero_grad()
    loss.backward()
    inputs = {"x": x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.numpy()}
    value, found = et.loss_and_gradients(model, inputs, target.numpy().astype(np.int32))
    np.testing.assert_allclose(value, loss.item(), rtol=1e-5)
    known = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    assert found.keys() <= known.keys() and len(found) >= 20
    whole = np.sqrt(sum(float((g**2).sum()) for g in known.values()))
    for name, gradient in found.items():
        error = np.linalg.norm(gradient - known[name])
        # float32 on both sides: near-zero gradients are compared relative to the whole gradient
        assert error <= 1e-4 * np.linalg.norm(known[name]) + 1e-6 * whole, name


class Padded(torch.nn.Module):
    """Words, and a mask of non-padding words."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, mask):
        return self.body(input_ids=x, attention_mask=mask).logits


@pytest.mark.slow  # masks are covered by tests/compiler/test_attention.py, too
@pytest.mark.parametrize("name", [name for name in CLASSES if name != "vit"])
def test_transformer_with_an_attention_mask_has_the_gradients_of_its_own_module(name, tmp_path):
    """The mask is an input; values after the end of a sample change nothing."""
    module, path = Padded(made(name)[0].body).train(), tmp_path / "masked.onnx"
    mask = torch.ones_like(IDS)
    mask[0, -4:] = 0
    x = torch.where(mask == 1, IDS, module.body.config.pad_token_id or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export_torch(module, (x, mask), path)
    model = et.load_onnx(path)
    logits = module(x, mask)
    target = torch.arange(logits[..., 0].numel()).reshape(logits.shape[:-1]) % 3
    torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.ravel()).backward()
    known = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    whole = np.sqrt(sum(float((g**2).sum()) for g in known.values()))
    inputs = {"x": x.numpy().astype(np.int32), "mask": mask.numpy().astype(np.int32)}
    for how in ({}, {"allow": ("attention",)}):
        _, found = et.loss_and_gradients(model, inputs, target.numpy().astype(np.int32), **how)
        assert found.keys() <= known.keys() and len(found) >= 20
        for key, gradient in found.items():
            error = np.linalg.norm(gradient - known[key])
            assert error <= 1e-4 * np.linalg.norm(known[key]) + 1e-6 * whole, (how, key)
    report = parity(model, steps=1, minibatch=2)
    assert report.ok, report.summary()


def test_transformer_has_the_same_gradients_by_blocks_of_attention(exported):
    _, module, x, model = exported
    options = make_options(minibatch=2, allow=("attention",))
    graph = build_graphs(Compilation(model, options), 2).train
    found = [n.op for n in graph.nodes if n.op in ("attention", "attention_bwd", "softmax")]
    assert sorted(found) == 2 * ["attention"] + 2 * ["attention_bwd"]
    inputs = {"x": x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.numpy()}
    target = np.arange(2 * 12).reshape(2, 12) % 3
    target = (target if module(x).ndim == 3 else target[:, 0]).astype(np.int32)
    value, gradients = et.loss_and_gradients(model, inputs, target, allow=("attention",))
    whole, expected = et.loss_and_gradients(model, inputs, target)
    np.testing.assert_allclose(value, whole, rtol=1e-6)
    size = max(np.abs(gradient).max() for gradient in expected.values())
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], 1e-4, 2e-6 * size, err_msg=name)


def test_transformer_is_at_parity_with_adapters_on_a_frozen_body(exported):
    name, _, _, model = exported
    report = parity(model, steps=1, minibatch=2, lora=f"r=2,targets={TARGETS[name]}", frozen="int4")
    assert report.ok, report.summary()
    judged = [row.name for row in report.rows if row.kind == "gradient"]
    assert judged and all(".lora_" in one for one in judged)


def test_transformer_learns_by_adapters_alone(exported):
    name, _, x, model = exported
    program = et.compile(
        model, lora=f"r=4,targets={TARGETS[name]}", minibatch=2, optimizer=et.AdamW(lr=0.02)
    )
    trainer = et.Trainer(program)
    given = x.numpy().astype(np.int32) if x.dtype == torch.int64 else x.numpy()
    target = np.zeros(trainer.session.output.shape[:-1], np.int32)
    losses = [trainer.step(given, target).loss for _ in range(24)]
    trainer.close()
    assert losses[-1] < losses[0] - 0.05
