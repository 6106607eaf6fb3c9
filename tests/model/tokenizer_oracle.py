#!/usr/bin/env python3
"""Compares our tokenizers with the `tokenizers` library, id for id, on many texts each.

Tokenizers: those of the GGUF files that are fetched already, and for every split pattern that we implement a small one
trained here, with the pre-tokenizer exactly as the family writes it. The texts and the library's ids go into a file that
the checking program reads:

    tokenizer_oracle.py CHECKER [--texts N] [--only NAME]

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

from oracle_texts import SPECIAL, Texts, conformance_texts

SEED = 20261130
CACHE = pathlib.Path(os.environ.get("SYSONE_CACHE", pathlib.Path.home() / ".cache" / "sysone")) / "models"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<|image_pad|>"]


def byte_level(use_regex, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def split(regex):
    step = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [step, byte_level(False)]}


DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level(True)]}
DIGIT_RUNS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}, byte_level(True, True)]}
NFC = {"type": "NFC"}


def added(content, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {**token, **flags}


# Flags of added tokens in every way that they meet: overlaps, one inside the other, stripping, normalised and not.
FLAGGED = [
    added("<mask>", lstrip=True), added("<m>", rstrip=True), added("<w>", single_word=True), added("<mask><", special=False),
    added("caf\u00e9", normalized=True, special=False), added("e\u0301t", normalized=True, special=False),
    added("word", normalized=True, special=False, single_word=True), added(" the", special=False), added("  ", special=False),
    added("\u4e2d\u4e2d", special=False), added("<lr>", lstrip=True, rstrip=True, single_word=True), added("aa", special=False),
    added("aab", normalized=True, special=False), added("\ud55c", normalized=True, special=False),
]


def train(pre_tokenizer, corpus, normalizer=None, tokens=CHAT, seed=0, **model):
    """A tokenizer.json, as text. model: fields to change in its BPE model.

    The merges are learnt from texts that are not split, so that they reach over every border of words: a split at a wrong
    place then changes the ids."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
            "pre_tokenizer": byte_level(False), "post_processor": None, "decoder": byte_level(True),
            "model": json.loads(Tokenizer(models.BPE()).to_str())["model"]}
    tokenizer = Tokenizer.from_str(json.dumps(base))
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(random.Random(seed).sample(corpus, len(corpus) // 2), trainer)
    spec = json.loads(tokenizer.to_str())
    spec["pre_tokenizer"] = pre_tokenizer
    for key, change in model.items():
        spec["model"][key] = change(spec["model"]) if callable(change) else change
    first = max(spec["model"]["vocab"].values()) + 1
    spec["added_tokens"] = [{"id": first + i, **(added(t) if isinstance(t, str) else t)} for i, t in enumerate(tokens)]
    return json.dumps(spec, ensure_ascii=False)


def half_the_merges(model):
    """Leaves tokens that no merge makes: only ignore_merges finds them."""
    return [m for i, m in enumerate(model["merges"]) if i < 256 or i % 2]


def vocabulary_with_holes(model):
    """Takes a third of the bytes' characters away, with all that was made of them."""
    gone = set(sorted(t for t in model["vocab"] if len(t) == 1)[::3])
    kept = {t: i for t, i in model["vocab"].items() if not gone & set(t)}
    model["merges"] = [m for m in model["merges"] if not gone & set("".join(m))]
    names = ["<unk>"] + [f"<0x{b:02X}>" for b in range(0xA0, 0x100)]  # bytes below C4 A0 stay unknown
    return {t: i for i, t in enumerate([*kept, *(n for n in names if n not in kept)])}


def trained_tokenizers(corpus):
    """(name, tokenizer.json, whether all texts are compared: once for every split pattern, the GGUF files being one more)."""
    yield "gpt2", train(byte_level(True), corpus, seed=1), True
    yield "llama3", train(split(LLAMA3), corpus, seed=2, ignore_merges=True), True
    yield "qwen2", train(split(QWEN2), corpus, NFC, seed=3), False
    yield "qwen35", train(split(QWEN35), corpus, NFC, seed=4), True
    yield "lfm2", train(split(LLAMA3), corpus, seed=5, ignore_merges=True, merges=half_the_merges), False
    yield "smollm", train(DIGITS, corpus, seed=6), False
    yield "flags", train(split(QWEN2), corpus, NFC, seed=7, tokens=FLAGGED), False
    yield "digit-runs-prefix-unknown", train(DIGIT_RUNS, corpus, seed=8, vocab=vocabulary_with_holes, unk_token="<unk>", fuse_unk=True), False
    yield "byte-fallback", train(byte_level(True), corpus, seed=9, vocab=vocabulary_with_holes, unk_token="<unk>", byte_fallback=True), False
    yield "holes", train(byte_level(True), corpus, seed=10, vocab=vocabulary_with_holes), False


def gguf_metadata(path):
    """The metadata of a GGUF file: {key: value}."""
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:
        def number(code):
            return struct.unpack("<" + code, file.read(struct.calcsize(code)))[0]

        def value(kind):
            if kind == 8:
                return file.read(number("Q")).decode("utf-8")
            if kind == 9:
                item, count = number("I"), number("Q")
                return [value(item) for _ in range(count)]
            return number(formats[kind])

        assert file.read(4) == b"GGUF", path
        number("I"), number("Q")
        return {value(8): value(number("I")) for _ in range(number("Q"))}


def from_gguf(path):
    """The tokenizer.json that this GGUF file was made from, as far as ids are concerned."""
    meta = gguf_metadata(path)
    pre_tokenizer, normalizer = {"smollm": (DIGITS, None), "qwen2": (split(QWEN2), NFC)}[meta["tokenizer.ggml.pre"]]
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    unused = 5
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {t: i for i, t in enumerate(tokens) if types[i] != unused},
             "merges": [m.split(" ") for m in meta["tokenizer.ggml.merges"]]}
    specials = [{"id": i, **added(t)} for i, t in enumerate(tokens) if types[i] in (3, 4)]
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": specials, "normalizer": normalizer,
                       "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": byte_level(True), "model": model})


def write_cases(path, tokenizer, texts):
    with open(path, "wb") as file:
        file.write(struct.pack("<I", len(texts)))
        for begin in range(0, len(texts), 20000):
            chunk = texts[begin : begin + 20000]
            for text, encoding in zip(chunk, tokenizer.encode_batch_fast(chunk, add_special_tokens=False)):
                data, ids = text.encode("utf-8"), encoding.ids
                file.write(struct.pack("<I", len(data)) + data + struct.pack(f"<I{len(ids)}i", len(ids), *ids))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checker")
    parser.add_argument("--texts", type=int, default=200_000)
    parser.add_argument("--only")
    options = parser.parse_args()
    from tokenizers import Tokenizer

    sent = conformance_texts()
    assert len(sent) > 100, "the conformance suite sent hardly any text"
    texts = ["", "\0", "a\0b", " ", SPECIAL, *sent] + Texts(SEED).distinct(options.texts)
    corpus = texts[:12_000]

    gguf_files = sorted(CACHE.glob("*.gguf"))
    subjects = [(name, spec, None, full or not gguf_files) for name, spec, full in trained_tokenizers(corpus)]
    subjects += [(path.name, from_gguf(path), path, True) for path in gguf_files]
    if not gguf_files:
        print(f"no GGUF file in {CACHE}: only trained tokenizers are compared")

    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name, spec, path, full in subjects:
            if options.only and options.only not in name:
                continue
            start = time.monotonic()
            tokenizer = Tokenizer.from_str(spec)
            specials = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
            choose = random.Random(SEED).choice
            own = ["".join(choose(specials) if c == SPECIAL else c for c in t) if SPECIAL in t else t
                   for t in (texts if full else texts[: len(texts) // 5])]
            own += specials + ["".join(specials)]
            cases = pathlib.Path(folder, "cases")
            write_cases(cases, tokenizer, own)
            if path is None:
                path = pathlib.Path(folder, "tokenizer.json")
                path.write_text(spec, encoding="utf-8")
            print(f"{name}: {len(own)} texts, library done after {time.monotonic() - start:.1f} s", flush=True)
            if subprocess.run([options.checker, path, cases, str(len(own))]).returncode != 0:
                failed.append(name)
    print("FAILED: " + ", ".join(failed) if failed else "all equal")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
