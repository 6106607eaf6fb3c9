#!/usr/bin/env python3
"""One decision at a time over HTTP with a model on the GPU: milliseconds of a request and of its pass. Part of scripts/gpu_check.

    scripts/gpu/http_bench.py --work FOLDER --json FILE [--shape qwen3-0.6b] [--device cuda]

Uses build/release where it is built, else builds the programs in FOLDER; makes the model there. Exit status 4, with the reason in the
last line, where the build lacks something.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1]), str(pathlib.Path(__file__).resolve().parents[1] / "bench")]
from common import client  # noqa: E402
from gpu import shape_model  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCOMPLETE = 4
WARM_UP = 20


def programs(work, device):
    """The folder of the programs."""
    wanted = ["sysone", "sysone-worker-cuda" if device == "cuda" else "sysone-worker"]
    folder = ROOT / "build/release/bin"
    if all((folder / name).exists() for name in wanted):
        return folder
    build = work / "build"
    configured = subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DSYSONE_BUILD_TESTS=OFF", "-DSYSONE_CUDA=ON"],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(configured.stdout)
    if configured.returncode:
        missing = re.findall(r"Could NOT find (\S+)|package configuration file provided by \"(\S+)\"|(\S+) NOTFOUND|Could not find (\S+)", configured.stdout)
        print("the programs cannot be built here: " + (", ".join(sorted({name for names in missing for name in names if name})) or "see above"))
        sys.exit(INCOMPLETE)
    subprocess.run(["cmake", "--build", build, "-j", str(os.cpu_count())], check=True)
    return build / "bin"


def prompt(tokens):
    """Text of about as many tokens, of one letter each at most with the model's small tokenizer."""
    return ("the parcel was sent on monday and the customer asks when it will arrive " * (tokens // 20 + 1))[: max(8, tokens * 2)]


class Server:
    def __init__(self, folder, model, device):
        command = [folder / "sysone", "serve", model, "--host", "127.0.0.1", "--port", "0", "--device", device, "--no-enable-prefix-caching",
                   "--disable-log-requests", "--log-level", "warning"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        while line := self.process.stdout.readline():
            print(line, end="", flush=True)
            if found := re.search(r"ready on \S+:(\d+)", line):
                self.client = client.Client(int(found[1]))
                return
        raise RuntimeError("the server ended before it was ready")

    def stop(self):
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def at(values, share):
    return sorted(values)[round(share * (len(values) - 1))]


def measure(server, length, requests):
    question = {"type": "choice", "instructions": "Is it late?", "criteria": {"yes": None, "no": None}}
    body = {"state": prompt(length), "questions": {"late": question}}
    for _ in range(WARM_UP):
        server.client.post("/v1/systemone", body)
    totals, answers, passes = zip(*(server.client.post("/v1/systemone", body) for _ in range(requests)))
    return {"tokens": answers[0]["usage"]["input_tokens"], "requests": requests, "p50_ms": at(totals, 0.5), "p99_ms": at(totals, 0.99), "pass_p50_ms": at(passes, 0.5)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--shape", default="qwen3-0.6b", choices=list(shape_model.SHAPES))
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--programs", type=pathlib.Path, help="folder of the programs, if they are built")
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    folder = options.programs or programs(options.work, options.device)
    server = Server(folder, shape_model.make(options.shape, options.work / options.shape), options.device)
    try:
        rows = [measure(server, length, options.requests) for length in (60, 300)]
    finally:
        server.stop()
    print(json.dumps(rows))
    options.json.write_text(json.dumps(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
