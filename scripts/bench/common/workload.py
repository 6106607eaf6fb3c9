"""The requests of the benches: made from a seed, so that both sides and every run ask the same.

Bodies are those of POST /v1/systemone, which both engines answer. Words are common ones, a token each with every tokenizer
here, so that a state's words are nearly its tokens.

SPDX-License-Identifier: Apache-2.0
"""

import random

WORDS = ("the parcel was sent last night and people ask when it will come because the shop said two days but nothing has come so far "
         "while money was paid at once for a new red house with water and light near some old green tree in our small town by the "
         "sea where every year many good men read long books about war and peace").split()
TEAMS = ("billing", "shipping", "security", "returns", "sales", "legal")


def words(rng, count):
    return " ".join(rng.choices(WORDS, k=count))


def state(rng, count):
    """Words, of which the first is always the same: at the beginning of a line some are two tokens."""
    return "the " + words(rng, count)


def choice(rng, options=3, length=3):
    names = TEAMS[:options] if options <= len(TEAMS) else [f"{rng.choice(WORDS)} {i}" for i in range(options)]
    return {"type": "choice", "instructions": f"Which fits {words(rng, length)}?", "criteria": dict.fromkeys(names)}


def noul(rng, length=6):
    return {"type": "noul", "instructions": f"Is this about {words(rng, length)}?"}


def score(rng):
    return {"type": "score", "instructions": f"How much does it speak of {words(rng, 3)}?", "criteria": ["not at all", "a little", "a lot"]}


def questions(rng, count):
    kinds = (choice, noul, score)
    return {f"q{i}": rng.choice(kinds)(rng) for i in range(count)}


def body(text, asked):
    return {"state": text, "questions": asked}


def single(rng, state_words):
    """One question of about 20 tokens over a fresh state."""
    return body(state(rng, state_words), {"q": choice(rng, 2)})


def same_question(rng, state_words):
    """The one question of a service, some 25 tokens, over a fresh state."""
    return body(state(rng, state_words), {"q": {"type": "noul", "instructions": "Is this urgent?"}})


def fitted(tokens_of, tokens, make=single):
    """The number of state words with which make() is a prompt of `tokens` tokens; tokens_of(body) counts them."""
    count = max(1, tokens - 50)
    for _ in range(8):
        off = tokens - tokens_of(make(random.Random(0), count))
        if off == 0:
            return count
        count = max(1, count + off)
    raise ValueError(f"no prompt of {tokens} tokens; the last one was {off} off")


def _mixed_one(kind, rng, long_states, most_options):
    if kind == "short":
        return body(state(rng, rng.randint(30, 80)), questions(rng, rng.randint(3, 5)))
    if kind == "medium":
        return body(state(rng, rng.randint(360, 880)), questions(rng, 1))
    if kind == "asked before":
        return body(rng.choice(long_states), questions(rng, 1))
    if kind == "ranking":
        return body(state(rng, 12), {f"d{i}": noul(rng, rng.randint(30, 60)) for i in range(30)})
    return body(state(rng, rng.randint(30, 80)), {"q": choice(rng, rng.randint(64, most_options))})


# Half short with several questions, a quarter of some hundred tokens, a tenth long over a state that was asked before, a tenth
# that rank 30 documents, the rest choices among many options.
_BLOCK = ["short"] * 10 + ["medium"] * 5 + ["asked before"] * 2 + ["ranking"] * 2 + ["options"]
MIX = len(_BLOCK)  # so many requests hold every share


def asked_before():
    """The long states of every mix."""
    rng = random.Random("asked before")
    return [state(rng, rng.randint(2000, 3600)) for _ in range(4)]


def mixed(seed, count, most_options=255):
    """The mix of a decision service. Every 20 requests hold the same shares in another order, so that a run that gets further
    than another has not done easier work."""
    rng = random.Random(seed)
    long_states = asked_before()
    bodies = []
    while len(bodies) < count:
        bodies += [_mixed_one(kind, rng, long_states, most_options) for kind in rng.sample(_BLOCK, len(_BLOCK))]
    return bodies[:count]
