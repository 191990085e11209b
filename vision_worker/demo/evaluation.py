"""How well drawn screens are found by what is said about them."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from statistics import fmean
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import CLIPModel

from vision_worker.demo.examples import Truths, draw, normalised
from vision_worker.demo.screens import captions, describe, split
from vision_worker.demo.tokens import tokenized

SEED = 999
VIEWS = 5
"""How many drawings of each composition are asked about, each in a gallery of its own."""
SPOKEN = 10


@torch.no_grad()
def evaluate(model: CLIPModel, tokenizer: Tokenizer) -> dict[str, Any]:
    """Top-1 rates on new drawings of the held-out compositions.

    ``text_to_image``: the caption, among the held-out screens; ``image_to_text``: the reverse;
    ``all_screens``: the caption, among screens of every composition, seen and held out;
    ``free_wording``: a random sentence that may leave attributes out, where any screen that it
    is true of may come first; ``by_kind``: ``text_to_image`` of each kind.
    """
    dice = Random(SEED)
    training, held_out = split()
    count = len(held_out)
    texts = _texts(model, tokenizer, [captions(screen)[0] for screen in held_out])
    seen = _pictures(model, draw(training, [1] * len(training), dice).squares)
    views = [_pictures(model, draw(held_out, [1] * count, dice).squares) for _ in range(VIEWS)]
    own = torch.arange(count)
    found = torch.stack([(texts @ view.T).argmax(1) == own for view in views]).float()
    named = torch.stack([(view @ texts.T).argmax(1) == own for view in views]).float()
    among_all = [(texts @ torch.cat([view, seen]).T).argmax(1) == own for view in views]
    by_kind: dict[str, list[float]] = defaultdict(list)
    for screen, rate in zip(held_out, found.mean(0).tolist(), strict=True):
        by_kind[screen.kind].append(rate)
    return {
        "held_out": count,
        "text_to_image": round(found.mean().item(), 3),
        "image_to_text": round(named.mean().item(), 3),
        "all_screens": round(torch.stack(among_all).float().mean().item(), 3),
        "free_wording": round(_free_wording(model, tokenizer, views, dice), 3),
        "by_kind": {kind: round(fmean(rates), 2) for kind, rates in by_kind.items()},
    }


def _free_wording(
    model: CLIPModel, tokenizer: Tokenizer, views: Sequence[torch.Tensor], dice: Random
) -> float:
    _, held_out = split()
    truths = Truths(held_out)
    asked = [(screen.kind, describe(screen, dice)) for screen in held_out * SPOKEN]
    texts = _texts(model, tokenizer, [caption.text for _, caption in asked])
    true = torch.stack([truths.of(kind, caption) for kind, caption in asked])
    rates = [
        true.gather(1, (texts @ view.T).argmax(1, keepdim=True)).float().mean().item()
        for view in views
    ]
    return fmean(rates)


def _texts(model: CLIPModel, tokenizer: Tokenizer, texts: Sequence[str]) -> torch.Tensor:
    features = model.get_text_features(**tokenized(tokenizer, texts)).pooler_output
    return torch.nn.functional.normalize(features, dim=-1)


def _pictures(model: CLIPModel, squares: torch.Tensor) -> torch.Tensor:
    features = model.get_image_features(pixel_values=normalised(squares)).pooler_output
    return torch.nn.functional.normalize(features, dim=-1)
