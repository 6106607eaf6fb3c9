"""The prompts behind decision requests, as token ids: what another engine is given to do the same work.

SPDX-License-Identifier: Apache-2.0
"""

import json
import subprocess

from common import machine

ORACLE = machine.ROOT / "build/release/tests_bin/oracle_bridge"


def token_ids(model_file, bodies):
    """For each body the prompts of its questions, as sysone tokenises them."""
    asked = "".join(json.dumps({"body": json.dumps(body)}) + "\n" for body in bodies)
    done = subprocess.run([ORACLE, "plan", str(model_file)], input=asked, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line)["prompts"] for line in done.stdout.splitlines()]


def completion(ids, labels):
    """The body of llama-server's POST /completion that comes nearest to a decision: every prompt once, one token sampled from
    each, with the probabilities of as many tokens as there are labels. It may reuse what is cached, as is its default."""
    return {"prompt": ids[0] if len(ids) == 1 else ids, "n_predict": 1, "n_probs": labels, "temperature": 0, "samplers": ["temperature"],
            "response_fields": ["tokens_evaluated", "completion_probabilities"]}
