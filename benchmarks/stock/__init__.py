"""Stock models of torchvision, timm and transformers, trained unmodified."""
