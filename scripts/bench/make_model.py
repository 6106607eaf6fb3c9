#!/usr/bin/env python3
"""Makes the GGUF files that benches need and nobody offers.

    .venv/test/bin/python scripts/bench/make_model.py random FILE.gguf
    .venv/test/bin/python scripts/bench/make_model.py decisions SOURCE.gguf FILE.gguf

random: a model of the shape of Qwen3-0.6B with random weights; speed depends on the shape alone. The tokenizer and the chat
template are those of the default model, which has the same vocabulary. Weights are bfloat16, fixed by a seed, and scaled so
that activations stay near one through all layers. Its answers mean nothing.

decisions: a copy of SOURCE that llama.cpp's own POST /v1/systemone serves: two more keys say that a decision is read at one
label token per option, and how a question is asked. That template writes the same text as sysone does for the same request,
so both engines work on the same tokens. (The letters of labels beyond Z differ, and llama.cpp reads A and B for noul, where
sysone reads yes and no: the work is the same, the probabilities are not.)

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import pathlib
import subprocess
import sys
import zlib

import gguf
import numpy as np
from transformers.utils.chat_template_utils import render_jinja_template

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER_OF = "qwen2.5-coder-1.5b"
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE, VOCABULARY = 28, 1024, 16, 8, 128, 3072, 151936
ROWS_AT_ONCE = 8192


def bfloat16(values):
    """Rounded to nearest, ties to even, as bytes."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(np.uint8)


def weight(name, rows, cols, deviation):
    """Normal values that depend on the tensor's name alone."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    parts = []
    for first in range(0, rows, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, rows - first)
        parts.append(bfloat16(random.standard_normal((count, cols), dtype=np.float32) * np.float32(deviation)))
    return np.concatenate(parts)


def add_tensors(writer):
    def matrix(name, rows, cols, deviation):
        writer.add_tensor(name, weight(name, rows, cols, deviation), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def norm(name, size):
        writer.add_tensor(name, np.ones(size, np.float32))

    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    matrix("token_embd.weight", VOCABULARY, HIDDEN, 0.02)
    norm("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        # What is added to the residual stream is smaller the more often something is added.
        added = (2 * LAYERS) ** -0.5
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight", HIDDEN)
        matrix(block + "attn_q.weight", q, HIDDEN, HIDDEN**-0.5)
        matrix(block + "attn_k.weight", kv, HIDDEN, HIDDEN**-0.5)
        matrix(block + "attn_v.weight", kv, HIDDEN, HIDDEN**-0.5)
        norm(block + "attn_q_norm.weight", HEAD_DIM)
        norm(block + "attn_k_norm.weight", HEAD_DIM)
        matrix(block + "attn_output.weight", HIDDEN, q, added * q**-0.5)
        norm(block + "ffn_norm.weight", HIDDEN)
        matrix(block + "ffn_gate.weight", INTERMEDIATE, HIDDEN, HIDDEN**-0.5)
        matrix(block + "ffn_up.weight", INTERMEDIATE, HIDDEN, HIDDEN**-0.5)
        matrix(block + "ffn_down.weight", HIDDEN, INTERMEDIATE, added * INTERMEDIATE**-0.5)


def copy_keys(writer, path, wanted):
    for name, field in gguf.GGUFReader(path).fields.items():
        if wanted(name):
            element = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], element)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_random(path):
    fetched = subprocess.run([ROOT / "scripts/fetch_model", TOKENIZER_OF], check=True, stdout=subprocess.PIPE, text=True)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("Qwen3-0.6B shape with random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_block_count(LAYERS)
    writer.add_context_length(40960)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    copy_keys(writer, fetched.stdout.strip(), lambda name: name.startswith("tokenizer."))
    add_tensors(writer)
    write(writer)


def decision_template(chat_template):
    """Jinja text that asks a question as sysone does. Literals stand in expressions, where no white space is trimmed."""
    content = "CONTENT-OF-THE-USER"
    frame = render_jinja_template(conversations=[[{"role": "user", "content": content}]], chat_template=chat_template,
                                  add_generation_prompt=True, bos_token="<|im_start|>", eos_token="<|im_end|>",
                                  enable_thinking=False)[0][0]
    before, after = frame.split(content)

    def literal(text):
        return "{{ " + json.dumps(text) + " }}"

    return (
        literal(before) + "{{ state if state is string else state | tojson }}" + literal("\n\nQuestion: ") + "{{ instructions }}" + literal("\n")
        + "{% if type == 'noul' %}" + literal("yes\nno\nAnswer with yes or no only.") + "{% else %}"
        + "{% for o in options %}"
        + "{% if type == 'score' %}{{ o.key + ': ' + o.description }}{% else %}{{ o.label + ': ' + o.key }}"
        + "{% if o.description %}{{ ' - ' + o.description }}{% endif %}{% endif %}" + literal("\n") + "{% endfor %}"
        + "{% if type == 'score' %}" + literal("Answer with the number of one level only.") + "{% else %}"
        + literal("Answer with the letter of one option only.") + "{% endif %}{% endif %}" + literal(after)
    )


def make_decisions(source, path):
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    # The writer sets these itself.
    copy_keys(writer, source, lambda name: not name.startswith("GGUF.") and name != "general.architecture")
    writer.add_string(f"{architecture}.decision.type", "nimble")  # labels A … Z, AA … ZZ
    template = reader.fields["tokenizer.chat_template"].contents()
    writer.add_string("tokenizer.chat_template.systemone", decision_template(template))
    writer.add_array("tokenizer.chat_templates", ["systemone"])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_shape=tensor.data.shape, raw_dtype=tensor.tensor_type)
    write(writer)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kind", choices=["random", "decisions"])
    parser.add_argument("files", type=pathlib.Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    if len(options.files) != {"random": 1, "decisions": 2}[options.kind]:
        parser.error("random takes one file, decisions two")
    {"random": make_random, "decisions": make_decisions}[options.kind](*options.files)
    print(f"{options.files[-1]}: {options.files[-1].stat().st_size / 1e9:.2f} GB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
