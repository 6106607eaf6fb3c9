#!/usr/bin/env python3
"""Times our tokenizer against the `tokenizers` library on prompts of about 300 tokens, in turns, and prints medians.

    .venv/test/bin/python scripts/bench/tokenizer.py [--build build/release] [--rounds 21]

The times are processor time of the encoding thread, so that other work on the machine counts little. Both sides must give
the same number of tokens, or the run fails. The library is called from Python one text at a time
and keeps its word cache; its own share is nearly all of that time.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "model"))
from oracle_texts import ENGLISH  # noqa: E402
from tokenizer_oracle import CACHE, from_gguf  # noqa: E402

PROMPT = """<|im_start|>system
Read the complete state and schema. Decide every field jointly. Answer with the option code only.<|im_end|>
<|im_start|>user
Hi, I was charged twice for my March invoice (order #4471) and the refund I was promised last week still hasn't arrived. I've
emailed three times. Please fix this today or I will dispute the charge with my bank. The second payment of $129.00 left my
account on 2026-03-14 at 09:32, although the first one had gone through two days earlier. Your colleague Joanna told me on the
phone that "it's a known problem with recurring payments" and that we'd both receive a confirmation; mine never came.

{"customer": {"id": 88213, "plan": "professional", "since": "2021-07-01", "open_tickets": 3}, "channel": "email"}

QUESTION:
Which team should handle this ticket?

Options:
A Billing: payments, invoices, refunds
B Technical: bugs, outages, integrations
C Sales: pricing questions, upgrades, new contracts

Reply with the option code only.<|im_end|>
<|im_start|>assistant
"""


def varied(seed):
    """The prompt with its story replaced by other words, so that no two texts are alike."""
    words = random.Random(seed).choices(ENGLISH, k=150)
    head, tail = PROMPT.split("Hi, I was", 1)
    return head + " ".join(words) + ".\n\n" + tail[tail.index("{") :]


def compare(name, path, texts, options):
    from tokenizers import Tokenizer

    library = Tokenizer.from_str(from_gguf(path))
    with tempfile.NamedTemporaryFile(suffix=".texts") as file:
        file.write(b"".join(t.encode("utf-8") + b"\0" for t in texts))
        file.flush()
        program = [str(ROOT / options.build / "bin" / "tokenizer_speed"), str(path), file.name]
        ours = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        times = {"library": [], "ours": []}
        for turn in range(options.rounds + 3):  # the first three warm up
            start = time.thread_time_ns()
            tokens = sum(len(library.encode(t, add_special_tokens=False).ids) for t in texts)
            spent = (time.thread_time_ns() - start) / len(texts)
            ours.stdin.write("\n")
            ours.stdin.flush()
            our_spent, our_tokens = map(float, ours.stdout.readline().split())
            if our_tokens != tokens:
                sys.exit(f"{name}: {our_tokens:.0f} tokens, and {tokens} by the library")
            if turn >= 3:
                times["library"].append(spent)
                times["ours"].append(our_spent)
        ours.stdin.close()
        ours.wait()
    library_us, ours_us = (statistics.median(times[side]) / 1000 for side in ("library", "ours"))
    print(f"{path.name}, {name}: {tokens / len(texts):.0f} tokens a text; library {library_us:.0f} us, "
          f"ours {ours_us:.1f} us, {library_us / ours_us:.1f} times faster")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    files = sorted(CACHE.glob("*.gguf"))
    if not files:
        sys.exit(f"no GGUF file in {CACHE}; scripts/setup fetches them")
    for path in files:
        compare("one prompt, 20 times", path, [PROMPT] * 20, options)
        compare("200 different prompts", path, [varied(seed) for seed in range(200)], options)


if __name__ == "__main__":
    main()
