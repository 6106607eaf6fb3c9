#!/usr/bin/python3
"""One decision at a time over HTTP, int8 against float32 in turns: milliseconds a decision, and how much of them lies outside
the forward pass.

    scripts/bench/latency.py [--model smollm2-135m] [--rounds 15] [--lengths 60 300] [--json FILE]

Starts one server a type on a free port of the loopback, sends prompts of about the asked lengths in the order A B A B, checks that
both types pick the same answer, and prints medians. Memory is the worker's and the API server's resident set.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import http.client
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TYPES = ("int8", "float32")
WORDS = ("the parcel was sent on monday and the customer asks when it will arrive because the shop said two days and "
         "nothing has come so far while the invoice was paid at once").split()


class Server:
    def __init__(self, model, dtype):
        command = [ROOT / "build/release/bin/sysone", "serve", model, "--host", "127.0.0.1", "--port", "0", "--dtype", dtype,
                   "--no-enable-prefix-caching", "--disable-log-requests", "--log-level", "warning"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")
        line = self.process.stdout.readline()
        found = re.search(r"ready on \S+:(\d+)", line)
        if not found:
            raise RuntimeError(f"no ready line, but: {line!r}")
        self.connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=120)

    def ask(self, body):
        """Milliseconds at the client, milliseconds of the pass, the answer."""
        begin = time.perf_counter()
        self.connection.request("POST", "/v1/systemone", body, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        text = response.read()
        total = (time.perf_counter() - begin) * 1e3
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {text.decode()}")
        timing = dict(re.findall(r"(\w+);dur=([\d.]+)", response.getheader("Server-Timing")))
        return total, float(timing["pass"]), json.loads(text)

    def resident_mib(self):
        sizes = {}
        listing = subprocess.run(["ps", "-o", "comm=,rss=", "--ppid", str(self.process.pid)], check=True,
                                 stdout=subprocess.PIPE, encoding="utf-8").stdout
        for line in listing.splitlines():
            name, kib = line.split()
            sizes[name] = int(kib) // 1024
        return sizes

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def request(words):
    return json.dumps({"state": " ".join(WORDS[i % len(WORDS)] for i in range(words)),
                       "questions": {"q": {"type": "noul", "instructions": "Is this about a delivery?"}}})


def body_of_length(server, tokens):
    """A request whose prompt has about `tokens` tokens, and the exact number."""
    words = 1
    for _ in range(6):
        used = server.ask(request(words))[2]["usage"]["input_tokens"]
        if abs(used - tokens) <= 2:
            break
        words = max(1, words + tokens - used)
    return request(words), used


def machine():
    model = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name"))
    flags = next(line for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("flags")).split()
    best = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if f in flags]
    cores = subprocess.run(["nproc"], check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout.strip()
    return f"{model}, {cores} cores, {' '.join(best)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--lengths", type=int, nargs="+", default=[60, 300])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()

    servers = {dtype: Server(options.model, dtype) for dtype in TYPES}
    results = {"machine": machine(), "model": options.model, "rounds": options.rounds, "lengths": []}
    print(f"{results['machine']}; {options.model}, {options.rounds} rounds, medians")
    print("| prompt tokens | int8 ms | float32 ms | float32 / int8 | outside the pass, ms |")
    print("|---|---|---|---|---|")
    try:
        for length in options.lengths:
            body, used = body_of_length(servers["int8"], length)
            totals = {dtype: [] for dtype in TYPES}
            outside = []
            for _ in range(options.rounds):
                winners = set()
                for dtype in TYPES:
                    total, in_pass, answer = servers[dtype].ask(body)
                    totals[dtype].append(total)
                    outside.append(total - in_pass)
                    winners.add(answer["answers"]["q"]["probabilities"]["yes"] > 0.5)
                if len(winners) != 1:
                    raise RuntimeError("int8 and float32 disagree")
            medians = {dtype: statistics.median(totals[dtype]) for dtype in TYPES}
            results["lengths"].append({"tokens": used, "ms": medians, "outside_ms": statistics.median(outside)})
            print(f"| {used} | {medians['int8']:.1f} | {medians['float32']:.1f} | "
                  f"{medians['float32'] / medians['int8']:.2f} | {statistics.median(outside):.2f} |", flush=True)
        results["resident_mib"] = {dtype: servers[dtype].resident_mib() for dtype in TYPES}
        print(f"resident MiB: {results['resident_mib']}")
    finally:
        for server in servers.values():
            server.stop()
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
