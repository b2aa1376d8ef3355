"""The examples of losses: 30 steps equal torch's."""

import inspect

import numpy as np
import onnx
import pytest
import torch

import edgetrain as et
from edgetrain.exporters import export_torch
from examples.losses import (
    az,
    boxes,
    contrastive,
    forecast,
    recogniser,
    segmentation,
    tagger,
    triplets,
    vae,
)
from tests.cases_random import normal

EXAMPLES = {
    az: az.Az,
    boxes: boxes.Detector,
    contrastive: contrastive.Encoder,
    forecast: forecast.Forecast,
    recogniser: recogniser.Recogniser,
    segmentation: segmentation.UNet,
    triplets: triplets.Triplets,
    vae: vae.Vae,
}
MINIBATCH, STEPS = 8, 30


def _drawn(path, program, step):
    """torch.randn_like with the numbers that the file's node draws at this step."""
    nodes = onnx.load(path).graph.node
    name = next((n.output[0] for n in nodes if n.op_type == "RandomNormalLike"), "")
    seed, own = program.recipe["seed"], program.microbatch

    def randn_like(x):
        parts = [normal((own, *x.shape[1:]), name, seed, step, k) for k in range(len(x) // own)]
        return torch.tensor(np.concatenate(parts).astype(np.float32))

    return randn_like


@pytest.mark.filterwarnings("ignore:.*RandomNormalLike draw")  # in evaluation too, as intended
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.__name__.rpartition(".")[2])
def test_thirty_steps_are_torchs(example, tmp_path, monkeypatch):
    assert len(inspect.getsource(example).splitlines()) <= 40
    torch.manual_seed(0)
    net, data = EXAMPLES[example](), example.data(MINIBATCH * STEPS)
    targets = {"y", *example.OUTPUTS} & {*data}
    inputs = [data[name] for name in data if name not in targets]
    names = [name for name in data if name not in targets]
    path = export_torch(
        net, tuple(x[:2] for x in inputs), tmp_path / "net.onnx",
        input_names=names, output_names=example.OUTPUTS,
    )  # fmt: skip
    program = et.compile(
        path, minibatch=MINIBATCH, optimizer=et.SGD(lr=0.05, momentum=0.9), **example.LOSS
    )
    method = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    trainer, y = et.Trainer(program), None
    for k in range(STEPS):
        monkeypatch.setattr(torch, "randn_like", _drawn(path, program, k))
        batch = {name: x[MINIBATCH * k : MINIBATCH * (k + 1)] for name, x in data.items()}
        loss = example.torch_loss(net(*(batch[name] for name in names)), batch)
        if targets:
            y = {name: batch[name] for name in targets}
            y = y if len(example.OUTPUTS) > 1 else next(iter(y.values()))
        found = trainer.step({name: batch[name] for name in names}, y)
        # A triplet's loss near 0 is a difference of lengths near 1.
        assert found.loss == pytest.approx(loss.item(), rel=1e-5, abs=1e-6), k
        method.zero_grad()
        loss.backward()
        method.step()
    for name, weight in net.named_parameters():
        expected = weight.detach().numpy()
        limit = 1e-5 * max(1, np.abs(expected).max())  # another summation order, 30 times
        np.testing.assert_allclose(trainer.parameters[name], expected, rtol=1e-4, atol=limit)
    trainer.close()


def test_a_tagger_of_padded_sentences_is_torchs_without_padding(tmp_path):
    assert len(inspect.getsource(tagger).splitlines()) <= 40
    torch.manual_seed(0)
    net, sentences = tagger.Tagger(), tagger.data(MINIBATCH * STEPS)
    words = torch.ones(2, 7, dtype=torch.long)
    path = export_torch(net, (words, words), tmp_path / "net.onnx", dims={1: "words"})
    program = et.compile(
        path, minibatch=MINIBATCH, optimizer=et.SGD(lr=0.05, momentum=0.9), **tagger.LENGTHS
    )
    method = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses: list[float] = []
    trainer = et.Trainer(
        program, sentences, callbacks=[et.Callback(on_step=lambda _, r: losses.append(r.loss))]
    )
    trainer.fit(steps=STEPS)
    lengths = set()
    for k, found in enumerate(losses):
        part, order = trainer._passes._samples_of(k)
        lengths.add(part.length)
        loss = tagger.torch_loss(net, [sentences[index] for index in order])
        assert found == pytest.approx(loss.item(), rel=1e-5), k
        method.zero_grad()
        loss.backward()
        method.step()
    assert lengths == {*tagger.LENGTHS["lengths"]} and len(losses) == STEPS
    for name, weight in net.named_parameters():
        expected = weight.detach().numpy()
        limit = 1e-5 * max(1, np.abs(expected).max())  # another summation order, 30 times
        np.testing.assert_allclose(trainer.parameters[name], expected, rtol=1e-4, atol=limit)
    for ids, _ in sentences[:3]:
        wanted = net(ids[None], torch.ones_like(ids[None]))[0].detach().numpy()
        np.testing.assert_allclose(trainer.predict(ids), wanted, rtol=1e-4, atol=1e-5)
    trainer.close()


@pytest.mark.parametrize("example", [boxes, triplets, segmentation, tagger])
def test_their_data_trains_without_further_words(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = inspect.getsource(example).replace("data(640)", "data(64)")
    exec(compile(source, example.__file__, "exec"), {"__name__": "__main__"})
