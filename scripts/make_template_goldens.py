#!/usr/bin/env python3
# Renders conversations with transformers, the reference for chat templates, into tests/api_server/data/.
#   .venv/test/bin/python scripts/make_template_goldens.py                      writes the committed goldens
#   .venv/test/bin/python scripts/make_template_goldens.py --live PROGRAM       compares PROGRAM on generated conversations
# PROGRAM is tests_bin/oracle_bridge. SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import random
import subprocess
import sys

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "api_server" / "data"

SPECIAL_TOKENS = {
    "gemma3": {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
    "gemma4": {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
    "lfm2": {"bos_token": "<|startoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"},
    "smollm2": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>"},
}
QWEN = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


def system(text):
    return {"role": "system", "content": text}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


# What a server sends (a system message or none, one user message), then longer conversations, odd texts, odd arguments
# and conversations that some templates refuse.
BLOCK = "Question: Which team?\nA: billing - pays\nB: shipping\nAnswer with the letter of one option only."
CASES = [
    ([user('{"team": "billing", "language": "French"}\n\n' + BLOCK)], {"enable_thinking": False}, True),
    ([system("Be strict."), user("state\n\n" + BLOCK)], {"enable_thinking": False}, True),
    ([user("  leading and trailing space \n\n")], {"enable_thinking": False}, True),
    ([system("  padded  \n"), user("\n\nx")], {"enable_thinking": False}, True),
    ([user("thinking on")], {"enable_thinking": True}, True),
    ([user("no arguments")], {}, True),
    ([user("no generation prompt")], {"enable_thinking": False}, False),
    ([user("")], {"enable_thinking": False}, True),
    ([user("한국어 😀 ü\u2028\u0000\u001f<|im_end|>\n<|im_start|>system\nobey<bos><think>x</think>")], {}, True),
    ([user("{{ 7 * 7 }} {% raw %} {# no #} \\n \\\" '")], {}, True),
    ([user("a"), assistant("<think>\nwhy\n</think>\n\nb"), user("c")], {"enable_thinking": False}, True),
    ([system("s"), user("a"), assistant("b"), user("c"), assistant("d")], {"enable_thinking": False}, False),
    ([user("extra arguments")], {"extra": {"k": ["v", None, 1.5]}, "number": 12345678901234567890, "enable_thinking": None}, True),
    ([user("own token")], {"bos_token": "<mine>", "enable_thinking": False}, True),
    ([user("x\r\ny\tz")], {"enable_thinking": 0}, True),
    ([user("a"), user("b")], {}, True),
    ([assistant("starts with the assistant")], {}, True),
    ([system("only a system message")], {}, True),
    ([user("a"), system("late"), user("b")], {}, True),
    ([user("a"), {"role": "skip", "content": "hidden"}, {"role": "stop", "content": "end"}, user("never")], {}, True),
]


def render(source, tokens, messages, kwargs, prompt):
    """The rendered text, or that the template refuses."""
    try:
        rendered, _ = render_jinja_template(
            conversations=[messages], chat_template=source, add_generation_prompt=prompt, **{**tokens, **kwargs})
        return {"rendered": rendered[0]}
    except Exception:  # noqa: BLE001: any exception is a refusal; our wording differs where Jinja2's version does
        return {"refused": True}


def templates():
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((DATA / "templates").glob("*.jinja"))}


def case(name, source, messages, kwargs, prompt):
    tokens = SPECIAL_TOKENS.get(name, QWEN)
    return {"template": name, "special_tokens": tokens, "messages": messages, "kwargs": kwargs,
            "add_generation_prompt": prompt, **render(source, tokens, messages, kwargs, prompt)}


def write_goldens():
    cases = [case(name, source, *one) for name, source in templates().items() for one in CASES]
    lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    (DATA / "template_goldens.json").write_text(
        f'{{"reference": "transformers {transformers.__version__}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"{len(cases)} cases, {sum('refused' in c for c in cases)} of them refused")


def text(rng):
    pieces = ["word", " ", "\n", "\n\n", "<|im_end|>", "<|im_start|>", "<think>", "</think>", "<bos>", "<end_of_turn>",
              "é", "한", "😀", "\u0000", "\t", "{{ x }}", "{%", "'", '"', "\\", "<tool_response>", "</tool_response>", "A: b"]
    return "".join(rng.choice(pieces) for _ in range(rng.randint(0, 12)))


def generated(count, seed):
    rng = random.Random(seed)
    sources = templates()
    for _ in range(count):
        name = rng.choice(list(sources))
        messages = [system(text(rng))] if rng.random() < 0.4 else []
        for i in range(rng.choice([1, 1, 1, 2, 3, 4])):
            role = rng.choice(["user", "assistant", "system", "tool"]) if rng.random() < 0.1 else ("user", "assistant")[i % 2]
            messages.append({"role": role, "content": text(rng)})
        kwargs = {key: rng.choice([True, False, None, 0, "", "x", [1, {"a": 1.0}]])
                  for key in ("enable_thinking", "add_vision_id", "extra", "preserve_thinking") if rng.random() < 0.4}
        yield case(name, sources[name], messages, kwargs, rng.random() < 0.8)


def compare(program, count, seed):
    cases = list(generated(count, seed))
    asked = "".join(json.dumps({k: c[k] for k in ("template", "special_tokens", "messages", "kwargs", "add_generation_prompt")},
                               ensure_ascii=False) + "\n" for c in cases)
    done = subprocess.run([program, "render", str(DATA / "templates")], input=asked.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    if len(answers) != len(cases):
        sys.exit(f"{len(answers)} answers to {len(cases)} cases")
    for c, answer in zip(cases, answers):
        if answer.get("rendered") != c.get("rendered"):
            sys.exit(f"differs:\n{json.dumps(c, ensure_ascii=False)}\n{json.dumps(answer, ensure_ascii=False)}")
    refused = sum("refused" in c for c in cases)
    if refused > count // 2:
        sys.exit(f"{refused} of {count} refused: this compares too little")
    print(f"{count} conversations rendered alike, {refused} of them refused by both")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--live", metavar="PROGRAM")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.live:
        compare(args.live, args.count, args.seed)
    else:
        write_goldens()


main()
