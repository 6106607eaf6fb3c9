"""API servers in front of stub workers, and the load generator: what the benches of the front end share.

SPDX-License-Identifier: Apache-2.0
"""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import tempfile

from common import machine, servers, stats, workload

BIN = machine.ROOT / "build/release/bin"
TESTS_BIN = machine.ROOT / "build/release/tests_bin"


@contextlib.contextmanager
def instance(model_file, flags=(), us_per_token=None, api_server=BIN / "sysone-api-server"):
    """sysone with stub workers: a pass takes no time, or sleeps `us_per_token`, a number for each group."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(api_server, f"{folder}/sysone-api-server")
        os.symlink(TESTS_BIN / "stub_worker", f"{folder}/sysone-worker")
        if us_per_token:
            pathlib.Path(folder, "sysone-worker.us").write_text(" ".join(map(str, us_per_token)), encoding="utf-8")
        # Stubs keep nothing, so no request may be sent to one because it was there before.
        flags = ("--program-dir", folder, "--no-enable-prefix-caching", *flags)
        with servers.SysoneServer(model_file, "float32", flags, threads=1) as server:
            yield server


def bodies(questions):
    """256 requests of about 60 tokens a question."""
    rng = random.Random(questions)
    asked = {f"q{i}": workload.noul(rng) if i % 2 == 0 else workload.score(rng) for i in range(questions)}
    return [json.dumps({"state": workload.state(rng, 24), "questions": asked}) for _ in range(256)]


def load(server, lines, clients, *limits):
    """What the load generator says; equal requests must have got equal answers."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        done = subprocess.run([TESTS_BIN / "load_generator", "--port", str(server.port), "--bodies", file.name, "--connections",
                               str(clients), "--check", *map(str, limits)],
                              stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def in_turns(sides, rounds, run):
    """{side: what run(side) measured in each round}, the sides in turns."""
    runs = {side: [] for side in sides}
    for _, side in stats.turns(list(sides), rounds):
        runs[side].append(run(side))
    return runs


def medians(runs):
    return {"answers_per_s": stats.median([run["answers_per_s"] for run in runs]),
            "requests_per_s": stats.median([run["requests_per_s"] for run in runs]),
            **{f"{q}_us": stats.median([run["latency_us"][q] for run in runs]) for q in ("p50", "p99", "max")},
            "outside_p50_us": stats.median([run["outside_us"]["p50"] for run in runs]),
            "outside_p99_us": stats.median([run["outside_us"]["p99"] for run in runs]),
            "served_p50_us": stats.median([run["served_us"]["p50"] for run in runs]),
            "served_p99_us": stats.median([run["served_us"]["p99"] for run in runs])}
