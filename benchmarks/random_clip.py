"""CLIP folders of real size with random weights: vectors without meaning, but with true cost.

    python benchmarks/random_clip.py FOLDER [--arch tiny|wide|b32|l14] [--layout hf|st|legacy]

``hf`` is what transformers saves, ``st`` what sentence-transformers saves today, and ``legacy`` the
shape in which clip-ViT-B-32 is published. The same seed gives the same weights. No network.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

Arch = Literal["tiny", "wide", "b32", "l14"]
Layout = Literal["hf", "st", "legacy"]

SMALL: dict[str, int] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
BASE: dict[str, int] = {}
"""What transformers takes for a CLIP of which nothing is said: ViT-B/32."""
LARGE_TEXT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
}
LARGE_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
}
ARCHITECTURES: dict[Arch, tuple[dict[str, int], dict[str, int], int]] = {
    "tiny": (SMALL, SMALL, 512),
    "wide": (SMALL, SMALL, 1024),
    "b32": (BASE, BASE, 512),
    "l14": (LARGE_TEXT, LARGE_VISION, 768),
}
"""Text tower, vision tower, width of the vectors. All take pictures of 224 pixels."""


def build(out: Path, arch: Arch = "tiny", layout: Layout = "hf", seed: int = 0) -> Path:
    """Write a model folder, whole or not at all; a folder that is there already is replaced."""
    import torch
    from transformers import CLIPConfig, CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    text, vision, width = ARCHITECTURES[arch]
    tokenizer = _tokenizer()
    special = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if text is SMALL:
        special["vocab_size"] = len(tokenizer)
    config = CLIPConfig(
        text_config={**text, **special, "projection_dim": width},
        vision_config={**vision, "projection_dim": width},
        projection_dim=width,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        saved = Path(scratch) / "hf"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = CLIPModel(config).eval()
        for part in (model, tokenizer, CLIPImageProcessorPil()):
            part.save_pretrained(saved)
        if layout != "hf":
            saved = _LAYOUTS[layout](saved, Path(scratch) / layout)
        shutil.rmtree(out, ignore_errors=True)
        saved.rename(out)
    return out


def _as_st(saved: Path, target: Path) -> Path:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(saved), device="cpu", local_files_only=True)
    model.save_pretrained(str(target), create_model_card=False)
    return target


def _as_legacy(saved: Path, target: Path) -> Path:
    target.mkdir()
    saved.rename(target / "0_CLIPModel")
    module = {
        "idx": 0,
        "name": "0",
        "path": "0_CLIPModel",
        "type": "sentence_transformers.models.CLIPModel",
    }
    versions = {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}
    (target / "modules.json").write_text(json.dumps([module]))
    (target / "config_sentence_transformers.json").write_text(json.dumps({"__version__": versions}))
    return target


_LAYOUTS = {"st": _as_st, "legacy": _as_legacy}


def _tokenizer() -> Any:
    """CLIP's byte-level tokenizer without any merges: a token a letter."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTokenizer

    letters = sorted(ByteLevel.alphabet())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    for token in ("<|startoftext|>", "<|endoftext|>"):
        vocabulary[token] = len(vocabulary)
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a CLIP folder with random weights.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", choices=list(ARCHITECTURES), default="tiny")
    parser.add_argument("--layout", choices=["hf", "st", "legacy"], default="hf")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    folder = build(chosen.folder, chosen.arch, chosen.layout, chosen.seed)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
