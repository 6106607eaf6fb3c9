#!/usr/bin/env python3
"""Reference decisions of the two models that are served by name.

For a seeded set of requests it writes what transformers makes of them in float32: the rendered prompt, its token ids, and the
log-probability of every label at the last position. tests/system/decision_golden_test.cc compares sysone with it.

    python make_decision_goldens.py --gguf ~/.cache/sysone/models/smollm2-135m.gguf --out decisions/smollm2-135m.json --requests 98
    python make_decision_goldens.py --gguf ~/.cache/sysone/models/qwen2.5-coder-1.5b.gguf --out decisions/qwen2.5-coder-1.5b.json --requests 26

Needs torch, transformers and gguf; the tests do not. The prompt is built here from the HTTP contract, independently of the
C++ code. Re-runs on one machine are byte-identical; another torch build may change the last digits.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import random

STATES = [
    "Hello, I was charged twice for my subscription this month. Please refund the second payment.",
    "My parcel says delivered but there is nothing at my door. The tracking number is 84-2231.",
    "Someone logged into my account from another country last night and changed the password.",
    "Bonjour, je voudrais changer l'adresse de livraison de ma commande.",
    "The app crashes every time I open the settings page on Android 14.",
    "How do I export all my invoices of 2024 as PDF?",
    "You people are useless. I have been waiting for three weeks and nobody answers!",
    "Thank you so much, the new dashboard is wonderful and saves me an hour a day.",
    {"team": "billing", "language": "French"},
    {"subject": "Password reset", "body": "The reset link has expired, can you send me a new one?", "priority": None},
    {"tool": "delete_file", "path": "/home/user/notes.txt", "asked_by_user": True},
    {"tool": "send_email", "to": "all-staff@example.com", "body": "Server maintenance tonight at 22:00.", "asked_by_user": False},
    {"query": "best way to cook rice", "document": "Rinse the rice, use one and a half cups of water per cup of rice, simmer for 15 minutes."},
    {"query": "capital of Australia", "document": "Kangaroos are marsupials native to Australia and New Guinea."},
    ["red", "green", "blue"],
    "def add(a, b):\n    return a - b\n",
    "SELECT name FROM users WHERE id = 1 OR 1=1; --",
    "The patient reports a mild headache since this morning, no fever, no nausea.",
    "Wir möchten gerne 200 Stück zum Preis von 3,50 € bestellen. Wann können Sie liefern?",
    "明日の会議は午後三時に変更になりました。",
    "The quarterly revenue grew by 12 % while costs stayed flat; we raise our outlook for the year.",
    "I want to cancel my plan at the end of the billing period.",
    "Is the store on Main Street open on Sunday?",
    "Click here to claim your free prize!!! Limited time only, send us your card number now.",
    {"temperature": 39.4, "unit": "C", "sensor": "boiler-7"},
    "The hotel room was clean and quiet, but breakfast was disappointing and overpriced.",
    "Please translate this document into Spanish by Friday.",
    "Our API returns 500 errors since the deployment at 14:05 UTC. All regions are affected.",
    "I think the movie was fine. Not great, not terrible.",
    "Could you tell me whether the warranty covers water damage?",
]

QUESTIONS = [
    {"type": "choice", "instructions": "Which team should handle this?",
     "criteria": {"billing": "payments, refunds and invoices", "shipping": "parcels and delivery", "security": "account safety",
                  "technical": "bugs and outages", "sales": None}},
    {"type": "choice", "instructions": "Which language is the text written in?",
     "criteria": {"English": None, "French": None, "German": None, "Japanese": None}},
    {"type": "choice", "instructions": "What kind of content is this?",
     "criteria": {"complaint": None, "question": None, "praise": None, "request": None, "code": None, "data": None}},
    {"type": "choice", "criteria": {"positive": "the writer is pleased", "negative": "the writer is displeased"}},
    {"type": "noul", "instructions": "Does the message ask for a refund?"},
    {"type": "noul", "instructions": "Is this spam or fraud?",
     "criteria": {"true": "unwanted advertising or an attempt to cheat", "false": "an ordinary message"}},
    {"type": "noul", "instructions": "Is it safe to carry this out without asking a person?", "criteria": {"true": "harmless"}},
    {"type": "noul", "instructions": {"task": "relevance", "ask": "Does the document answer the query?"}},
    {"type": "score", "instructions": "How urgent is this?", "criteria": ["not urgent", "soon", "today", "immediately"]},
    {"type": "score", "instructions": "How angry is the writer?", "criteria": ["calm", "annoyed", "furious"]},
    {"type": "score", "instructions": "Rate the quality.",
     "criteria": [{"level": "poor"}, {"level": "fair"}, {"level": "good"}, {"level": "very good"}, {"level": "excellent"}]},
    {"type": "choice", "instructions": "Which number fits best?", "criteria": {f"item {i}": None for i in range(40)}},
]

SYSTEM = [None, None, None, "You decide for a support desk. Be careful.", "Answer like an expert."]


def make_requests(seed, count):
    """`count` requests of 1 … 4 questions; every question of the list comes often."""
    rng = random.Random(seed)
    requests = []
    for _ in range(count):
        picked = rng.sample(QUESTIONS[:-1], rng.choice([1, 2, 2, 3]))
        if rng.random() < 0.06:
            picked.append(QUESTIONS[-1])
        request = {"state": rng.choice(STATES), "questions": {f"q{i}": q for i, q in enumerate(picked)}}
        system = rng.choice(SYSTEM)
        if system:
            request["instructions"] = system
        requests.append(request)
    return requests


def as_text(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def label_pool(tokenizer):
    """A–Z, a–z, 00–99: what 40 options need. Only labels that are one token count."""
    pool = [chr(c) for c in range(ord("A"), ord("Z") + 1)] + [chr(c) for c in range(ord("a"), ord("z") + 1)]
    return [x for x in pool if len(tokenizer.encode(x, add_special_tokens=False)) == 1]


def question_block(question, pool):
    """Text of the question and its labels."""
    lines = []
    if question.get("instructions"):
        lines.append("Question: " + as_text(question["instructions"]))
    criteria = question.get("criteria") or {}
    if question["type"] == "choice":
        labels = pool[:len(criteria)]
        for label, (name, description) in zip(labels, criteria.items()):
            lines.append(f"{label}: {name}" + (f" - {as_text(description)}" if description is not None else ""))
        lines.append("Answer with the letter of one option only.")
    elif question["type"] == "noul":
        labels = ["yes", "no"]
        for label, key in zip(labels, ("true", "false")):
            lines.append(label + (f": {as_text(criteria[key])}" if criteria.get(key) is not None else ""))
        lines.append("Answer with yes or no only.")
    else:
        labels = [str(i) for i in range(len(criteria))]
        lines += [f"{label}: {as_text(level)}" for label, level in zip(labels, criteria)]
        lines.append("Answer with the number of one level only.")
    return "\n".join(lines), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--requests", type=int, default=98)
    parser.add_argument("--seed", type=int, default=20)
    args = parser.parse_args()

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.manual_seed(0)
    folder, file = os.path.split(os.path.abspath(args.gguf))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, attn_implementation="eager").eval()
    pool = label_pool(tokenizer)

    decisions = 0
    out = []
    for request in make_requests(args.seed, args.requests):
        questions = []
        for name, question in request["questions"].items():
            block, labels = question_block(question, pool)
            messages = [{"role": "system", "content": request["instructions"]}] if "instructions" in request else []
            messages.append({"role": "user", "content": as_text(request["state"]) + "\n\n" + block})
            prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
            ids = tokenizer.encode(prompt, add_special_tokens=False)
            label_ids = [tokenizer.encode(x, add_special_tokens=False) for x in labels]
            assert all(len(x) == 1 for x in label_ids), (name, labels)
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids])).logits[0, -1].float()
            logprobs = torch.log_softmax(logits.double(), -1)
            questions.append({"prompt": prompt, "ids": ids, "labels": labels, "label_ids": [x[0] for x in label_ids],
                              "logprobs": [float(f"{logprobs[x[0]].item():.9g}") for x in label_ids],
                              "argmax": int(logits.argmax())})
            decisions += 1
        out.append({"request": request, "questions": questions})
        print(f"\r{decisions} decisions", end="", flush=True)
    with open(args.out, "w", encoding="utf-8") as file_out:
        file_out.write("[\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in out) + "\n]\n")
    print(f"\n{decisions} decisions in {args.out}")


if __name__ == "__main__":
    main()
