"""The list of stock models and their configurations, written before any was tried.

Weights are random; nothing is downloaded. A vision or audio model has its published size if its
weights take at most 200 MB. Otherwise it is the smallest of its family, with its repeated blocks
cut to two. A language model has a width of at most 256, at most 4 layers and at most 8,192 tokens,
and is otherwise as published. Images have the size that the library publishes for the model, or
224 x 224 if it takes any size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MINIBATCH = 2
TOKENS = 64  # of a text


@dataclass(frozen=True)
class Listed:
    """A stock model.

    Attributes:
      library: torchvision, timm or transformers.
      name: of the function or class that makes it.
      arguments: of that function, or of the class's configuration.
      inputs: forward's argument -> shape of a float sample, or ("tokens", length).
      output: name of the output, if there are several; "": the only one.
      loss: name of the loss.
      class_axis: of cross-entropy; 0: derived from the shapes.
      family: its group in the table.
    """

    library: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, tuple] = field(default_factory=lambda: {"x": (3, 224, 224)})
    output: str = ""
    loss: str = "cross_entropy"
    class_axis: int = 0
    family: str = "image CNN"

    @property
    def label(self) -> str:
        """The name in the table and on the command line."""
        return f"{self.library}/{self.name}"

    @property
    def text(self) -> str:
        """The arguments that differ from the published configuration."""
        return ", ".join(f"{name}={value}" for name, value in self.arguments.items())


def _image(size: int, name: str = "x") -> dict[str, tuple]:
    return {name: (3, size, size)}


_TRANSFORMER = {"family": "image transformer"}
_SEGMENTER = {"family": "segmentation"}
_VIDEO = {"family": "video"}
_CLIP = {"x": (3, 16, 112, 112)}  # channels, frames, rows, columns
_LARGE_CLIP = {"x": (3, 16, 224, 224)}
_TORCHVISION: dict[str, dict[str, Any]] = {
    "alexnet": {},  # 244 MB, but the smallest of its family
    "convnext_tiny": {},
    "densenet121": {},
    "efficientnet_b0": {},
    "efficientnet_v2_s": {},
    "googlenet": {"arguments": {"aux_logits": False, "init_weights": False}},
    "inception_v3": {
        "arguments": {"aux_logits": False, "init_weights": False}, "inputs": _image(299),
    },
    "maxvit_t": _TRANSFORMER,
    "mnasnet1_0": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mobilenet_v3_large": {},
    "regnet_y_400mf": {},
    "resnet18": {},
    "resnext50_32x4d": {},
    "shufflenet_v2_x1_0": {},
    "squeezenet1_1": {},
    "swin_t": _TRANSFORMER,
    "swin_v2_t": {"inputs": _image(256), **_TRANSFORMER},
    "vgg11_bn": {},  # 531 MB, and hardly any is smaller
    "VisionTransformer": {
        "arguments": {
            "image_size": 224, "patch_size": 16, "num_layers": 2, "num_heads": 12,
            "hidden_dim": 768, "mlp_dim": 3072,
        }, **_TRANSFORMER,
    },
    "wide_resnet50_2": {"arguments": {"layers": [2, 2, 2, 2], "width_per_group": 128}},
    "deeplabv3_mobilenet_v3_large": {"output": "out", **_SEGMENTER},
    "fcn_resnet50": {"output": "out", **_SEGMENTER},
    "lraspp_mobilenet_v3_large": {"inputs": _image(224, "input"), "output": "out", **_SEGMENTER},
    "retinanet_resnet50_fpn": {
        "output": "cls_logits", "loss": "bce_with_logits", "family": "detection",
    },
    "r3d_18": {"inputs": _CLIP, **_VIDEO},
    "s3d": {"inputs": _LARGE_CLIP, **_VIDEO},
    "mvit_v1_b": {"inputs": _LARGE_CLIP, **_VIDEO},
    "swin3d_t": {"inputs": _LARGE_CLIP, **_VIDEO},
}  # fmt: skip

_TIMM = {
    ("image CNN", 224): """
        resnet18 resnet26d resnet50 resnetv2_50 seresnet50 skresnet18 res2net50_26w_4s dla34
        hrnet_w18_small ese_vovnet19b_dw repvgg_a0 mobileone_s0 regnetx_002 regnety_002 rexnet_100
        mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small ghostnet_100 lcnet_050
        efficientnet_b0 tf_efficientnet_lite0 eca_nfnet_l0 convnext_atto convnextv2_atto""",
    ("image transformer", 224): """
        vit_tiny_patch16_224 deit_tiny_patch16_224 swin_tiny_patch4_window7_224 levit_128s
        efficientformer_l1 poolformer_s12 pvt_v2_b0 mixer_s32_224 resmlp_12_224
        xcit_nano_12_p16_224 coat_lite_tiny""",
    ("image transformer", 256): "mobilevit_xxs mobilevitv2_050 edgenext_xx_small fastvit_t8",
}

_IDS = {"input_ids": ("tokens", TOKENS)}
_BOTH = _IDS | {"decoder_input_ids": ("tokens", TOKENS)}
_SMALL = {"vocab_size": 8192, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
_BERT = _SMALL | {"intermediate_size": 1024}
_LLAMA = _BERT | {"num_key_value_heads": 2, "head_dim": 64}
_ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_SEQ2SEQ = {
    "vocab_size": 8192, "d_model": 256, "encoder_layers": 4, "decoder_layers": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024, "decoder_start_token_id": 0,
}  # fmt: skip
_OF_TOKENS = {"class_axis": 2}
_LM = {"family": "language model", "class_axis": 2}
_SEQUENCES = {"family": "text to text", "class_axis": 2}
_AUDIO = {"family": "audio"}
_TWO = {"num_hidden_layers": 2}  # blocks, for a model over 200 MB
_PIXELS = _image(224, "pixel_values")
_SECOND = {"input_values": (16000,)}  # of audio

_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": {"arguments": _BERT, **_OF_TOKENS},
    "BertForTokenClassification": {"arguments": _BERT | {"num_labels": 9}, **_OF_TOKENS},
    "BertForQuestionAnswering": {"arguments": _BERT, "output": "start_logits"},
    "RobertaForSequenceClassification": {"arguments": _BERT},
    "XLMRobertaForTokenClassification": {"arguments": _BERT | {"num_labels": 9}, **_OF_TOKENS},
    "DistilBertForSequenceClassification": {
        "arguments": {
            "vocab_size": 8192, "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024,
        }
    },
    "AlbertForMaskedLM": {"arguments": _BERT, **_OF_TOKENS},
    "ElectraForPreTraining": {"arguments": _BERT, "loss": "bce_with_logits"},
    "DebertaV2ForSequenceClassification": {
        "arguments": _BERT
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 32}
    },
    "MPNetForMaskedLM": {"arguments": _BERT, **_OF_TOKENS},
    "FunnelForSequenceClassification": {
        "arguments": {
            "vocab_size": 8192, "d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 1024,
            "block_sizes": [1, 1, 2],
        }
    },
    "ConvBertForMaskedLM": {"arguments": _BERT | {"embedding_size": 256}, **_OF_TOKENS},
    "MobileBertForQuestionAnswering": {
        "arguments": {"vocab_size": 8192, "num_hidden_layers": 4}, "output": "start_logits",
    },
    "SqueezeBertForSequenceClassification": {"arguments": _BERT | {"embedding_size": 256}},
    "ModernBertForMaskedLM": {
        "arguments": _SMALL | _ENDS | {"intermediate_size": 384}, **_OF_TOKENS,
    },
    "RoFormerForMaskedLM": {"arguments": _BERT | {"embedding_size": 256}, **_OF_TOKENS},
    "XLNetLMHeadModel": {
        "arguments": {"vocab_size": 8192, "d_model": 256, "n_layer": 4, "n_head": 4,
                      "d_inner": 1024}, **_LM,
    },
    "GPT2LMHeadModel": {
        "arguments": {"vocab_size": 8192, "n_embd": 256, "n_layer": 4, "n_head": 4} | _ENDS, **_LM,
    },
    "GPTNeoForCausalLM": {
        "arguments": {
            "vocab_size": 8192, "hidden_size": 256, "num_layers": 4, "num_heads": 4,
            "attention_types": [[["global", "local"], 2]],
        } | _ENDS, **_LM,
    },
    "GPTNeoXForCausalLM": {"arguments": _BERT, **_LM},
    "OPTForCausalLM": {
        "arguments": _SMALL | {"ffn_dim": 1024, "word_embed_proj_dim": 256}, **_LM,
    },
    "BloomForCausalLM": {
        "arguments": {"vocab_size": 8192, "hidden_size": 256, "n_layer": 4, "n_head": 4}, **_LM,
    },
    "LlamaForCausalLM": {"arguments": _LLAMA, **_LM},
    "MistralForCausalLM": {"arguments": _LLAMA, **_LM},
    "Qwen2ForCausalLM": {"arguments": _BERT | {"num_key_value_heads": 2}, **_LM},
    "GemmaForCausalLM": {"arguments": _LLAMA, **_LM},
    "PhiForCausalLM": {"arguments": _BERT | {"num_key_value_heads": 4}, **_LM},
    "T5ForConditionalGeneration": {
        "arguments": {
            "vocab_size": 8192, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 4,
            "num_heads": 4,
        }, "inputs": _BOTH, "output": "logits", **_SEQUENCES,
    },
    "BartForConditionalGeneration": {
        "arguments": _SEQ2SEQ | _ENDS, "inputs": _BOTH, "output": "logits", **_SEQUENCES,
    },
    "MarianMTModel": {
        "arguments": _SEQ2SEQ | _ENDS, "inputs": _BOTH, "output": "logits", **_SEQUENCES,
    },
    "ViTForImageClassification": {"arguments": _TWO, "inputs": _PIXELS, **_TRANSFORMER},
    "DeiTForImageClassification": {"arguments": _TWO, "inputs": _PIXELS, **_TRANSFORMER},
    "BeitForImageClassification": {"arguments": _TWO, "inputs": _PIXELS, **_TRANSFORMER},
    "SwinForImageClassification": {"inputs": _PIXELS, **_TRANSFORMER},
    "SegformerForSemanticSegmentation": {"inputs": _PIXELS, **_SEGMENTER},
    "MobileViTForImageClassification": {
        "inputs": _image(256, "pixel_values"), **_TRANSFORMER,
    },
    "Wav2Vec2ForCTC": {
        "arguments": _TWO, "inputs": _SECOND, **_OF_TOKENS, **_AUDIO,
    },
    "HubertForSequenceClassification": {"arguments": _TWO, "inputs": _SECOND, **_AUDIO},
    "WhisperForConditionalGeneration": {
        "arguments": _SEQ2SEQ | _ENDS,
        "inputs": {"input_features": (80, 3000), "decoder_input_ids": ("tokens", TOKENS)},
        "output": "logits", **_OF_TOKENS, **_AUDIO,
    },
    "ASTForAudioClassification": {
        "arguments": _TWO, "inputs": {"input_values": (1024, 128)}, **_AUDIO,
    },
}  # fmt: skip


def listed() -> list[Listed]:
    """All models by family, in the table's order."""
    rows = [Listed("torchvision", name, **row) for name, row in _TORCHVISION.items()]
    for (family, size), names in _TIMM.items():
        rows += [Listed("timm", name, inputs=_image(size), family=family) for name in names.split()]
    usual = {"inputs": _IDS, "output": "logits", "family": "text encoder"}
    for name, row in _TRANSFORMERS.items():
        rows.append(Listed("transformers", name, **(usual | row)))
    families = list(dict.fromkeys(row.family for row in rows))
    return sorted(rows, key=lambda row: families.index(row.family))
