"""Sentences as token ids: one token a word, and one for all unknown words."""

from collections.abc import Sequence
from random import Random

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from vision_worker.demo.screens import vocabulary

SPECIAL = ("<pad>", "<unk>", "<bos>", "<eos>")
PAD, UNKNOWN, BEGIN, END = range(4)
LONGEST = 32
UNKNOWN_SHARE = 0.2


def word_tokenizer() -> Tokenizer:
    """A tokenizer of the screens' vocabulary that ignores case and punctuation."""
    words = {word: number for number, word in enumerate([*SPECIAL, *vocabulary()])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("removed"), pre_tokenizers.WhitespaceSplit()]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[(SPECIAL[BEGIN], BEGIN), (SPECIAL[END], END)]
    )
    return tokenizer


def tokenized(
    tokenizer: Tokenizer, texts: Sequence[str], dice: Random | None = None
) -> dict[str, torch.Tensor]:
    """Token ids and mask, int64 (texts, longest); dice scatter unknown words in between."""
    rows = [tokenizer.encode(text).ids for text in texts]
    if dice:
        for row in rows:
            while dice.random() < UNKNOWN_SHARE:
                row.insert(dice.randrange(1, len(row)), UNKNOWN)
    longest = min(LONGEST, max(map(len, rows)))
    ids = torch.tensor([(row + [PAD] * longest)[:longest] for row in rows])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}
