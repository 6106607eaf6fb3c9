#!/usr/bin/env python3
# Shows our answers to the two public judges of the contract: jevcompat's validator and the official SDK's parser.
#   answers_oracle.py tests_bin/oracle_bridge
# SPDX-License-Identifier: Apache-2.0
import json
import math
import random
import subprocess
import sys

import httpx2
from jevcompat import validate
from jevcompat.client import Response, parse_json
from typesafe_sdk import SystemOneResponse

TEXTS = ["plain", "환불 요청", "🙂 \"x\"\n", {"z": 1.0, "a": ["é", None]}, ["l", {"k": 2}]]


def question(rng):
    kind = rng.choice(["choice", "noul", "score"])
    q = {"type": kind}
    if rng.random() < 0.7:
        q["instructions"] = rng.choice(TEXTS + [None])
    if kind == "choice":
        n = rng.choice([1, 2, 3, 26, 27, 255])
        q["criteria"] = {f"{rng.choice(['option', '옵션 🙂', 'a/b'])} {i}": rng.choice(TEXTS + [None]) for i in range(n)}
    elif kind == "score":
        n = rng.randint(2, 10)
        q["criteria"] = [rng.choice(TEXTS) for _ in range(n)]
    else:
        n = 2
        if rng.random() < 0.5:
            q["criteria"] = rng.choice([None, {"true": "t"}, {"false": ["f"]}, {"true": None, "false": "f"}])
    scale = rng.choice([0.01, 1, 10, 90])
    return q, [rng.uniform(-scale, scale) for _ in range(n)]


def requests(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        questions, logits = {}, {}
        for i in range(rng.randint(1, 6)):
            qid = f"{rng.choice(['q', 'zz 🙂', 'x.y/z'])}{i}"
            questions[qid], logits[qid] = question(rng)
        yield {"state": rng.choice(TEXTS), "questions": questions, "diagnostics": rng.random() < 0.3}, logits


def check(request, logits, text, fields):
    raw = text.encode()
    data, error, nonfinite = parse_json(raw)
    response = Response(200, {"content-type": "application/json"}, raw, 1.0, data, error, nonfinite)
    allowed = {"response.extensions"} if fields == "vllm" else set()
    found = [str(v) for v in validate.validate_success(request, response) if v.req not in allowed]
    if found:
        sys.exit(f"jevcompat: {found}\n{json.dumps(request, ensure_ascii=False)}\n{text}")
    parsed = SystemOneResponse.from_http_response(
        httpx2.Response(200, content=raw, headers={"content-type": "application/json", "x-typesafe-request-id": "r"}))
    if list(parsed.answers) != list(request["questions"]):
        sys.exit(f"the SDK sees {list(parsed.answers)} in\n{text}")
    body = json.loads(raw)
    for qid, answer in body["answers"].items():
        top = max(logits[qid])
        weights = [math.exp(x - top) for x in logits[qid]]
        for p, w in zip(answer.get("probabilities", {}).values(), weights):
            # Our logits are float32: one of size up to 90 is off by up to 2^-18, and so is p relatively; twice that for
            # the sum below.
            if not abs(p - w / sum(weights)) <= 2 * 90 * 2.0**-23 * max(p, 1e-300) + 1e-300:
                sys.exit(f"p = {p}, expected {w / sum(weights)} in {qid}")


def main():
    program, count = sys.argv[1], 400
    for fields in ("vllm", "typesafe"):
        cases = list(requests(count, seed=len(fields)))
        lines = "".join(json.dumps({"body": json.dumps(r, ensure_ascii=False), "logits": l}) + "\n" for r, l in cases)
        done = subprocess.run([program, "answer", fields], input=lines.encode(), stdout=subprocess.PIPE, check=True)
        answers = [line for line in done.stdout.decode().split("\n") if line]
        if len(answers) != count:
            sys.exit(f"{len(answers)} answers to {count} requests")
        for (request, logits), text in zip(cases, answers):
            check(request, logits, text, fields)
    print(f"{2 * count} answers accepted by jevcompat and typesafe-sdk")


main()
