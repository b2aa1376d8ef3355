"""A tagger for sentences of any length: words attend to all words of their sentence."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

import edgetrain as et
from edgetrain.exporters import export_torch

LENGTHS = {"lengths": [8, 16, 32]}  # a sentence trains at the smallest length that holds it


class Tagger(nn.Module):
    """Words [n, words] and a mask, 0 after the end of a sentence -> logits [n, words, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 5)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        h = self.embed(ids)
        q, k, v = self.qkv(h).chunk(3, -1)
        return self.out(h + F.scaled_dot_product_attention(q, k, v, mask[:, None] > 0))


def data(n: int) -> list[tuple[Tensor, Tensor]]:
    lengths = torch.randint(3, 33, (n,)).tolist()
    return [(torch.randint(50, (k,)), torch.randint(5, (k,))) for k in lengths]


def torch_loss(net: nn.Module, sentences: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The same loss in torch, one sentence at a time, without padding."""
    logits = [net(ids[None], torch.ones_like(ids[None]))[0] for ids, _ in sentences]
    return F.cross_entropy(torch.cat(logits), torch.cat([tags for _, tags in sentences]))


if __name__ == "__main__":
    words = torch.ones(2, 8, dtype=torch.long)
    export_torch(Tagger(), (words, words), "tagger.onnx", dims={1: "words"})
    et.Trainer(et.compile("tagger.onnx", **LENGTHS), data(640), keep_last=True).fit(epochs=2)
