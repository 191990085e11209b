"""The tiny CLIP as an ordinary model folder: weights, tokenizer and preprocessing."""

import json
from copy import deepcopy
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import CLIPModel

from vision_worker.demo.examples import DEVIATION, MEAN, SIDE
from vision_worker.demo.tokens import LONGEST, SPECIAL


def save(model: CLIPModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model's files, the weights in half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    half = deepcopy(model)
    torch.nn.Module.to(half, torch.float16)
    half.save_pretrained(folder)
    # safetensors keeps its files to their owner; whoever runs the demo has to read this one.
    (folder / "model.safetensors").chmod(0o644)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = dict(zip(("pad_token", "unk_token", "bos_token", "eos_token"), SPECIAL, strict=True))
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": LONGEST, **tokens},
    )
    _write(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "CLIPImageProcessor",
            "do_convert_rgb": True,
            "do_resize": True,
            "size": {"shortest_edge": SIDE},
            "resample": 3,
            "do_center_crop": True,
            "crop_size": {"height": SIDE, "width": SIDE},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": MEAN,
            "image_std": DEVIATION,
        },
    )


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n")
