"""Stock models of torchvision, timm and transformers, trained as they are."""
