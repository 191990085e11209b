"""Train the tiny CLIP on drawn screens: ``python -m vision_worker.demo.train --out FOLDER``.

Nothing is downloaded. The same seed and threads give the same weights on one machine; results.json
beside them says how well screens of held-out compositions are found.
"""

import argparse
import json
import math
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn.functional import cross_entropy
from transformers import CLIPConfig, CLIPModel

from vision_worker.demo.evaluation import evaluate
from vision_worker.demo.examples import (
    SIDE,
    Truths,
    console,
    disturbed,
    draw,
    normalised,
    progress,
)
from vision_worker.demo.folder import save
from vision_worker.demo.screens import describe, split
from vision_worker.demo.tokens import BEGIN, END, LONGEST, PAD, tokenized, word_tokenizer

STEPS = 2000
BATCH = 128
DRAWINGS = 200
WARM_UP = 100
LEARNING_RATE = 1.5e-3
WEIGHT_DECAY = 0.1
WIDTH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    started = time.monotonic()
    tokenizer = word_tokenizer()
    model = new_model(tokenizer)
    train(model, tokenizer, options.steps, Random(options.seed))
    save(model, tokenizer, options.out)
    written = CLIPModel.from_pretrained(options.out, dtype=torch.float32)
    results = evaluate(written, tokenizer) | {
        "parameters": sum(weights.numel() for weights in model.parameters()),
        "seed": options.seed,
        "steps": options.steps,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    (options.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    console.print_json(data=results)


def new_model(tokenizer: Tokenizer) -> CLIPModel:
    tower = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_attention_heads": 4,
        "projection_dim": WIDTH,
    }
    text = tower | {
        "num_hidden_layers": 1,
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": LONGEST,
        "pad_token_id": PAD,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
    }
    vision = tower | {"num_hidden_layers": 3, "image_size": SIDE, "patch_size": 8}
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=WIDTH))


def train(model: CLIPModel, tokenizer: Tokenizer, steps: int, dice: Random) -> None:
    """Contrastive training in which a sentence belongs to every picture that it is true of."""
    screens, _ = split()
    of_kind = Counter(screen.kind for screen in screens)
    # A kind of many compositions is harder than one of few, but not in proportion.
    counts = [round(DRAWINGS / math.cbrt(of_kind[screen.kind])) for screen in screens]
    drawings = draw(screens, counts, dice)
    truths = Truths(screens)
    optimizer, schedule = _optimizer(model, steps)
    order: list[int] = []
    model.train()
    with progress() as shown:
        task = shown.add_task("training", total=steps)
        for _ in range(steps):
            if len(order) < BATCH:
                order = dice.sample(range(sum(counts)), sum(counts))
            batch, order = order[:BATCH], order[BATCH:]
            owners = drawings.owners[batch]
            # Every screen is described anew at each step: the hardest negatives are those that
            # differ in one attribute, and a batch alone holds few of them.
            said = [(screen.kind, describe(screen, dice)) for screen in screens]
            true = torch.stack([truths.of(kind, caption) for kind, caption in said])[:, owners]
            output = model(
                **tokenized(tokenizer, [caption.text for _, caption in said], dice),
                pixel_values=disturbed(normalised(drawings.squares[batch])),
            )
            scale = model.logit_scale.exp().clamp(max=100)
            loss = contrast(scale * output.text_embeds @ output.image_embeds.T, true)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            shown.update(task, advance=1, description=f"training, loss {loss.item():.2f}")


def contrast(scores: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Cross entropy of texts against images and back; what is true shares the probability.

    ``scores`` float (texts, images), ``true`` bool of that shape. Texts that are true of no image
    here count only against the images.
    """
    wanted = true.float()
    some = true.any(1)
    by_text = cross_entropy(scores[some], wanted[some] / wanted[some].sum(1, keepdim=True))
    by_image = cross_entropy(scores.T, wanted.T / wanted.T.sum(1, keepdim=True))
    return (by_text + by_image) / 2


def _optimizer(
    model: CLIPModel, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """AdamW without decay of biases and norms; warm-up, then a cosine down to a fiftieth."""
    matrices = [weights for weights in model.parameters() if weights.ndim >= 2]
    vectors = [weights for weights in model.parameters() if weights.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        groups, LEARNING_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY
    )

    def factor(step: int) -> float:
        cosine = 0.51 + 0.49 * math.cos(math.pi * step / steps)
        return min(1.0, (step + 1) / WARM_UP) * cosine

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


if __name__ == "__main__":
    main()
