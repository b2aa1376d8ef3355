"""What runs on the device: the arena, the executor of tapes, the trainer, checkpoints.

Nothing here imports onnx, scipy or a compiler pass; a Program and compiled kernels are enough.
"""

from .arena import Arena
from .executor import Executor
from .trainer import Trainer

__all__ = ["Arena", "Executor", "Trainer"]
