#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the tiny random-weight models of tests/golden and their reference outputs, offline.

Each family function below builds a very small model whose shape ratios follow a published checkpoint (GQA factor,
head_dim other than hidden / heads, biases, RoPE scaling), so that an engine has to get every code path right.
Each family's folder gets
    config.json, model.safetensors          written by save_pretrained
    tokenizer.json, tokenizer_config.json   a tiny byte-level BPE shared by all
    golden.json                             inputs, last-row logits, hidden states after each layer
and tokenizer/ gets the tokenizer alone, with golden strings and ids.

All weights are rounded to values that a bfloat16 can hold before anything is run, so the reference is exact for F32 and
for BF16 storage: a difference is then an arithmetic difference, never a rounding of weights.

Usage: make_goldens.py [--out DIR] [--only family,family] [--store float32|bfloat16]
Needs: torch 2.15, transformers 5.24, tokenizers 0.23, safetensors. Other versions may change the last digits.
"""
import argparse
import copy
import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import torch
import transformers as tf
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

torch.set_num_threads(1)
torch.set_grad_enabled(False)

VOCAB = 768            # embedding rows; the tokenizer may use fewer (as real ones do)
SEED = 20260101
LABELS = ["A", "B", "C", "D"]   # four single-token answers, read at the last position

# Control tokens of all the families, so that one tokenizer can serve them all.
SPECIALS = [
    "<|endoftext|>", "<|startoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>",
    "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|audio_pad|>",
    "<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>",
    "[PAD]", "[CLS]", "[SEP]", "[MASK]", "<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>",
]

# The regex of the Qwen2/Qwen3 pre-tokenizer (digits one by one).
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

CHATML = (
    "{%- for m in messages -%}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)

CORPUS = """
The parcel arrived late and the box was open. Is this a complaint? Yes, the sender is not happy.
A user asks for a refund. Route the message to billing, not to sales or support.
Options: A billing, B sales, C support, D other. Reply with the option code only.
Question: does the state say that the door is closed? Reply with yes or no only.
yes no Yes No YES NO true false True False. The answer is yes. The answer is no.
Score the text on a scale from 0 to 9: 0 none, 1 little, 2 some, 3 more, 4 much, 9 all.
{"state": {"city": "Lyon", "temp": 21.5, "open": true}, "question": {"type": "choice"}}
The quick test covers tokens, words, numbers like 1234567890 and signs (a+b)*c == d; x != y.
Ein kurzer Satz mit Umlauten: Tür, schön, Käse. Une phrase en français : déjà vu, où est-elle ?
State: the light is green and the road is clear. Decide whether the car may go on.
system user assistant instructions criteria label description state question options answer
The cat sat on the mat while the rain fell on the roof, and the fire kept the room warm.
We can't say it's done; they're sure we'll try, I've seen it and you'd know, I'm certain.
If the order total is more than 100 then ask a manager, or else approve it at once.
"""

# Answer words that must be single tokens, with and without a leading space.
ANSWERS = ["yes", "no", "Yes", "No", "YES", "NO", "true", "false"]


def build_tokenizer():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        [line for line in CORPUS.splitlines() for _ in range(4)]
        + [lead + word for word in ANSWERS + list("ABCD") for lead in ("", " ") for _ in range(60)],
        trainers.BpeTrainer(
            vocab_size=VOCAB - 32, min_frequency=2, special_tokens=SPECIALS, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
    )
    return tok


def save_tokenizer(tok, folder):
    fast = tf.PreTrainedTokenizerFast(tokenizer_object=tok, bos_token=None, eos_token="<|im_end|>", pad_token="[PAD]",
                                      mask_token="[MASK]")
    fast.chat_template = CHATML
    # False keeps the template inside tokenizer_config.json (5.x would else write a .jinja file).
    fast.save_pretrained(folder, save_jinja_files=False)
    return fast


TOKENIZER = build_tokenizer()


def tid(token):
    """The id of one token that must exist."""
    i = TOKENIZER.token_to_id(token)
    assert i is not None, token
    return i


def encode(text):
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def prompts():
    """Three prompts: a few ids, a ChatML question, and a long one."""
    chat = ("<|im_start|>user\nThe parcel arrived late and the box was open.\n\n\nQUESTION:\nWhich team?\n\n"
            "Options:\nA billing\nB sales\nC support\nD other\n\nReply with the option code only."
            "<|im_end|>\n<|im_start|>assistant\n")
    return [("short", encode("The light is green")[:5]),
            ("chat", encode(chat)),
            ("long", (encode(CORPUS.strip()) * 2)[:150])]


def to_bf16_grid(t):
    return t.to(torch.bfloat16).to(t.dtype)


def seed(n):
    return SEED + n + (6000 if n == 1 else 0)   # qwen3's first seeds gave ill-conditioned nets


def fill(model, start, hidden, logit_std=2.0, qk_norm=1.5):
    """Seeded weights with variance-preserving scales (the usual 0.02 makes flat logits).

    qk_norm scales the q and k norms, so that attention is neither flat nor one-hot.
    """
    gen = torch.Generator().manual_seed(start)

    def normal(p, std, mean=0.0):
        return torch.randn(p.shape, generator=gen) * std + mean

    for name, p in model.named_parameters():
        leaf, fan_in = name.rsplit(".", 1)[-1], p.shape[-1]
        if leaf == "bias":
            w = normal(p, 0.2)
        elif "norm" in name:
            w = normal(p, 0.25, qk_norm if "q_norm" in name or "k_norm" in name else 1.0)
        elif "embed_tokens" in name or "lm_head" in name:
            w = normal(p, logit_std / hidden ** 0.5)
        elif "o_proj" in name or "down_proj" in name:
            w = normal(p, 0.7 / fan_in ** 0.5)
        else:
            w = normal(p, 1.2 / fan_in ** 0.5)
        p.copy_(to_bf16_grid(w))
    return model.eval()


def common(**kw):
    base = dict(vocab_size=VOCAB, max_position_embeddings=1024, bos_token_id=None,
                eos_token_id=tid("<|im_end|>"), pad_token_id=tid("[PAD]"))
    return {**base, **kw}


def rope(theta, **kw):
    return {"rope_type": "default", "rope_theta": theta, **kw}


def qwen3():
    """Qwen3-0.6B ratios: q width = 2 x hidden, GQA 2:1, q/k norm, tied."""
    c = tf.Qwen3Config(**common(hidden_size=64, intermediate_size=192, num_hidden_layers=3,
                                num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                                rope_parameters=rope(1e6), tie_word_embeddings=True))
    m = fill(tf.Qwen3ForCausalLM(c), seed(1), 64)
    return dict(model=m, layers=m.model.layers, cases=prompts())


def qwen2():
    """Qwen2.5-0.5B ratios: biased q/k/v, GQA 7:1, tied."""
    c = tf.Qwen2Config(**common(hidden_size=112, intermediate_size=304, num_hidden_layers=2,
                                num_attention_heads=7, num_key_value_heads=1,
                                rope_parameters=rope(1e6), tie_word_embeddings=True))
    m = fill(tf.Qwen2ForCausalLM(c), seed(2), 112)
    return dict(model=m, layers=m.model.layers, cases=prompts())


def llama():
    """SmolLM2-135M ratios: 9 heads, GQA 3:1, eps 1e-5, theta 1e5, tied."""
    c = tf.LlamaConfig(**common(hidden_size=144, intermediate_size=384, num_hidden_layers=2,
                                num_attention_heads=9, num_key_value_heads=3, rms_norm_eps=1e-5,
                                rope_parameters=rope(1e5), tie_word_embeddings=True))
    m = fill(tf.LlamaForCausalLM(c), seed(3), 144)
    return dict(model=m, layers=m.model.layers, cases=prompts())


def llama3():
    """Llama-3.x: frequency-dependent RoPE scaling and an untied head."""
    c = tf.LlamaConfig(**common(hidden_size=64, intermediate_size=224, num_hidden_layers=2,
                                num_attention_heads=4, num_key_value_heads=1, rms_norm_eps=1e-5,
                                rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0,
                                                 "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                                 "original_max_position_embeddings": 128},
                                tie_word_embeddings=False))
    m = fill(tf.LlamaForCausalLM(c), seed(4), 64)
    return dict(model=m, layers=m.model.layers, cases=prompts())


FAMILIES = [qwen3, qwen2, llama, llama3]


def num(x):
    """A float with nine significant digits: enough to recover a float32 exactly."""
    return float(f"{float(x):.9g}")


def nums(t):
    return [num(x) for x in t.flatten().tolist()]


def rms(t):
    return num(t.float().pow(2).mean().sqrt())


class Watch:
    """Forward hooks that record the hidden states leaving each layer."""

    def __init__(self, layers):
        self.out = []
        self.hooks = [l.register_forward_hook(self.take) for l in layers]

    def take(self, _module, _args, out):
        h = out[0] if isinstance(out, (tuple, list)) else out
        self.out.append(h[0].detach().float())

    def close(self):
        for h in self.hooks:
            h.remove()


def golden(model, layers, cases, labels):
    out = []
    for name, ids in cases:
        watch = Watch(layers)
        row = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        watch.close()
        top = row.topk(8)
        out.append({
            "name": name, "input_ids": ids,
            "rows": [{"name": "last", "argmax": int(row.argmax()),
                      "top": [[int(i), num(v)] for i, v in zip(top.indices, top.values)],
                      "label_probs": nums(torch.softmax(row[labels], -1)), "logits": nums(row)}],
            # RMS alone cannot see a rotated or permuted vector: the first four numbers can.
            "layers": [{"rms": rms(h), "rms_at_read": rms(h[-1]), "first4_at_read": nums(h[-1, :4])}
                       for h in watch.out]})
    return out


TOKEN_CASES = [
    "", "a", "Yes", " Yes", "A", "The parcel arrived late.", "1234567890", "3.14e-5", "  two  spaces  ", "tab\tnew\n\nline\r\n",
    "It's we'll THEY'RE", "Tür déjà vu", "e\u0301 (needs NFC)", "日本語のテキスト", "emoji 👩‍🚀🏳️‍🌈", "\u00a0nbsp\u3000wide",
    "<|im_start|>user\nhi<|im_end|>\n", "almost <|im_start special", "{\"a\": [1, 2.5, true]}", "x" * 70, "\x00\x01\x7f",
]


def tokenizer_golden(out_dir):
    """Strings with their ids and decoded text, and a rendered chat, for testing a tokenizer alone."""
    folder = os.path.join(out_dir, "tokenizer")
    fast = save_tokenizer(TOKENIZER, folder)
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it open?"}]
    cases = [{"text": t, "ids": encode(t), "decoded": TOKENIZER.decode(encode(t), skip_special_tokens=False)}
             for t in TOKEN_CASES]
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump({"vocab_size": TOKENIZER.get_vocab_size(), "cases": cases, "chat": {
            "messages": chat, "text": fast.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)}},
            f, indent=1)


def make(build, out_dir, store):
    folder = os.path.join(out_dir, build.__name__)
    os.makedirs(folder, exist_ok=True)
    fam = build()
    model = fam["model"]
    model.set_attn_implementation("eager")
    labels = [tid(x) for x in LABELS]
    # A copy is cast: model.to(bfloat16) would also round the RoPE frequency buffers, for good.
    copy.deepcopy(model).to(store).save_pretrained(folder)
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)   # 5.x writes it as 0600
    os.remove(os.path.join(folder, "generation_config.json"))
    save_tokenizer(TOKENIZER, folder)
    g = {"family": build.__name__, "class": type(model).__name__,
         "reference": f"transformers {tf.__version__}, torch {torch.__version__}, float32, eager attention",
         "seed": SEED, "label_ids": labels, "label_texts": LABELS, "read_position": -1,
         "cases": golden(model, fam["layers"], fam["cases"], labels)}
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(g, f, separators=(",", ":"))
    print(folder)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    ap.add_argument("--only", default="")
    ap.add_argument("--store", default="float32", choices=["float32", "bfloat16"])
    args = ap.parse_args()
    only = set(filter(None, args.only.split(",")))
    for token in LABELS + ANSWERS + [" " + x for x in LABELS + ANSWERS] + list("0123456789"):
        assert len(encode(token)) == 1, f"{token!r} is not one token"
    tokenizer_golden(args.out)
    for build in FAMILIES:
        if not only or build.__name__ in only:
            make(build, args.out, getattr(torch, args.store))


if __name__ == "__main__":
    main()
