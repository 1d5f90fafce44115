#!/usr/bin/env python3
"""Export the trained weights as the committed files, and check those files.

    export.py golden            make golden/ again from calbin/weights.safetensors
    dates.py heldout N SEED | export.py check
                                count the lines INPUT<TAB>EXPECTED which the exported model gets
                                right; print the others

Everything here is NumPy: its forward pass reads the exported file and is written apart from the
one in train.py and from the device's own, so that agreement between them means something.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np

import dates

HERE = Path(__file__).resolve().parent
VERSION = "0.7.6"

DIM = 64
HIDDEN_DIM = 192
N_LAYERS = 4
N_HEADS = 4
HEAD_DIM = DIM // N_HEADS
VOCAB_SIZE = dates.VOCAB_SIZE
MAX_SEQ_LEN = 64
UBATCH = 16
ROPE_THETA = 10000.0
NORM_EPS = 1e-5

ALIGNMENT = 64
GOLDEN_INPUT = "3 Mar 2024"
GOLDEN_TOLERANCE = 0.01
NUMPY_TYPES = {"F32": np.dtype("<f4"), "I8": np.dtype("i1")}


def tensor_shapes():
    """The shape of every weight by its name, in the model's order."""
    shapes = {"model.embed_tokens.weight": (VOCAB_SIZE, DIM)}
    for number in range(N_LAYERS):
        layer = f"model.layers.{number}"
        shapes[f"{layer}.input_layernorm.weight"] = (DIM,)
        for part in "qkvo":
            shapes[f"{layer}.self_attn.{part}_proj.weight"] = (DIM, DIM)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (DIM,)
        for part in ("gate", "up"):
            shapes[f"{layer}.mlp.{part}_proj.weight"] = (HIDDEN_DIM, DIM)
        shapes[f"{layer}.mlp.down_proj.weight"] = (DIM, HIDDEN_DIM)
    shapes["model.norm.weight"] = (DIM,)
    return shapes


# ---- int8 and the safetensors file ---------------------------------------------------------------


def quantised(weights):
    """Matrices as int8 with a scale for each row, `<name>_scale`; vectors as they are."""
    tensors = {}
    for name, weight in weights.items():
        if weight.ndim == 1:
            tensors[name] = weight.astype("<f4")
            continue
        scale = (np.abs(weight).max(axis=1) / 127).astype("<f4")
        tensors[name] = np.rint(weight / scale[:, None]).clip(-127, 127).astype("i1")
        tensors[f"{name}_scale"] = scale
    return tensors


def dequantised(tensors, dtype):
    """The matrices and vectors that the int8 ones stand for."""
    weights = {}
    for name in tensor_shapes():
        weights[name] = tensors[name].astype(dtype)
        if weights[name].ndim == 2:
            weights[name] *= tensors[f"{name}_scale"].astype(dtype)[:, None]
    return weights


def write_safetensors(path, tensors):
    """Write the tensors without holes, each at a multiple of 64 bytes.

    That works because all sizes but one are such multiples; the odd one goes last.
    """
    order = sorted(tensors, key=lambda name: (tensors[name].nbytes % ALIGNMENT != 0,
                                              tensors[name].dtype != np.float32))
    header, offset = {}, 0
    for name in order:
        tensor = tensors[name]
        assert offset % ALIGNMENT == 0
        header[name] = {"dtype": "F32" if tensor.dtype == np.float32 else "I8",
                        "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + tensor.nbytes]}
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    data = b"".join(tensors[name].tobytes() for name in order)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """The tensors of the file by name."""
    content = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", content)[0]
    tensors = {}
    for name, entry in json.loads(content[8:start]).items():
        first, last = (start + offset for offset in entry["data_offsets"])
        flat = np.frombuffer(content[first:last], NUMPY_TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def read_weights(dtype):
    """The exported model's weights."""
    return dequantised(read_safetensors(HERE / "calbin/weights.safetensors"), dtype)


# ---- the forward pass ----------------------------------------------------------------------------


def rms_norm(x, gain):
    """RMSNorm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(NORM_EPS)) * gain


def rotated(x):
    """Rotate x [batch, heads, length, head_dim]: element i is paired with i + head_dim / 2."""
    half = HEAD_DIM // 2
    angles = np.outer(np.arange(x.shape[2]), ROPE_THETA ** (-np.arange(half) / half))
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return np.concatenate((left * cos - right * sin, right * cos + left * sin), -1)


def attention(weights, layer, x):
    """Causal self-attention of one layer over x [batch, length, dim]."""
    batch, length, _ = x.shape

    def heads(part):
        projected = x @ weights[f"{layer}.self_attn.{part}_proj.weight"].T
        return projected.reshape(batch, length, N_HEADS, HEAD_DIM).transpose(0, 2, 1, 3)

    query, key, value = rotated(heads("q")), rotated(heads("k")), heads("v")
    scores = query @ key.transpose(0, 1, 3, 2) / x.dtype.type(HEAD_DIM ** 0.5)
    scores[..., ~np.tri(length, dtype=bool)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    mixed = (shares @ value).transpose(0, 2, 1, 3).reshape(batch, length, DIM)
    return mixed @ weights[f"{layer}.self_attn.o_proj.weight"].T


def feed_forward(weights, layer, x):
    """SwiGLU of one layer."""
    gate = x @ weights[f"{layer}.mlp.gate_proj.weight"].T
    up = x @ weights[f"{layer}.mlp.up_proj.weight"].T
    return (gate / (1 + np.exp(-gate)) * up) @ weights[f"{layer}.mlp.down_proj.weight"].T


def logits(weights, tokens):
    """The logits [batch, length, vocab] of tokens [batch, length], from position 0."""
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[tokens]
    for number in range(N_LAYERS):
        layer = f"model.layers.{number}"
        gain = weights[f"{layer}.input_layernorm.weight"]
        x = x + attention(weights, layer, rms_norm(x, gain))
        gain = weights[f"{layer}.post_attention_layernorm.weight"]
        x = x + feed_forward(weights, layer, rms_norm(x, gain))
    return rms_norm(x, weights["model.norm.weight"]) @ embedding.T


def greedy_answer(weights, text):
    """The model's answer to one input, up to and without the end marker."""
    tokens = dates.encode(text)
    start = len(tokens)
    while len(tokens) < MAX_SEQ_LEN:
        best = int(logits(weights, np.array([tokens]))[0, -1].argmax())
        if best == dates.EOS:
            break
        tokens.append(best)
    return bytes(token for token in tokens[start:] if token < 256).decode(errors="replace")


def answered_exactly(weights, pairs):
    """For each (input, answer), whether greedy decoding gives that answer.

    It does when each token of the answer is the best one after all before it, so one pass will do.
    """
    rows = [(dates.encode(text), [*answer.encode(), dates.EOS]) for text, answer in pairs]
    tokens = np.zeros((len(rows), max(len(prompt) + len(answer) for prompt, answer in rows)), int)
    for row, (prompt, answer) in zip(tokens, rows):
        row[:len(prompt) + len(answer)] = prompt + answer
    best = logits(weights, tokens).argmax(-1)
    return [best[row, len(prompt) - 1:len(prompt) + len(answer) - 1].tolist() == answer
            for row, (prompt, answer) in enumerate(rows)]


# ---- the committed files -------------------------------------------------------------------------


def program():
    """The description of the compiled program for the software device."""
    return {
        "format": "npufs-sim-program", "version": VERSION, "architecture": "llama",
        "llama": {
            "dim": DIM, "hidden_dim": HIDDEN_DIM, "n_layers": N_LAYERS, "n_heads": N_HEADS,
            "n_kv_heads": N_HEADS, "vocab_size": VOCAB_SIZE, "max_seq_len": MAX_SEQ_LEN,
            "max_batch_size": 1, "ubatch": UBATCH, "rope_theta": ROPE_THETA, "norm_eps": NORM_EPS,
            "tied_embeddings": True,
        },
    }


def artifact():
    """The template of the manifest, for the project's own tool to complete and sign."""
    csrs = ["cur_seq_len[0]", "past_kv_cur_seq_len[0]"]

    def tensor(name, dtype, size):
        return [{"name": name, "dtype": dtype, "shape": [size]}]

    def model_program(name, width):
        return {"name": name, "inputs": tensor("tokens", "int32", width),
                "outputs": tensor("logits", "float32", VOCAB_SIZE), "csrs": csrs}

    return {
        "schema": "npufs-manifest-1",
        "kind": "llm",
        "description": "free-form dates to ISO 8601 (YYYY-MM-DD, or invalid)",
        "calbin_version": VERSION,
        "compatible": {"runtime": [VERSION]},
        "batch": 1,
        "context_limit": MAX_SEQ_LEN,
        "tokenizer": {"type": "bytes", "vocab_size": VOCAB_SIZE, "prefix": [dates.BOS],
                      "suffix": [dates.SEP], "stop": [dates.EOS]},
        "defaults": {"max_new_tokens": 16, "temperature": 0},
        "example": {"prompt": "3rd of March, 2024", "max_new_tokens": 16},
        "programs": [
            model_program("prefill", UBATCH),
            model_program("decode", 1),
            {"name": "kv_update", "inputs": [], "outputs": tensor("kv_length", "int32", 1),
             "csrs": csrs},
        ],
        "golden": [{"program": "prefill", "input": "golden/prefill.in",
                    "output": "golden/prefill.out", "valid": len(dates.encode(GOLDEN_INPUT)),
                    "tolerance": GOLDEN_TOLERANCE}],
    }


def write_json(path, value):
    """The value as indented JSON."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_golden():
    """One micro-batch of tokens, and the logits after its last valid token, in float64."""
    prompt = dates.encode(GOLDEN_INPUT)
    after_last = logits(read_weights(np.float64), np.array([prompt]))[0, -1]
    folder = HERE / "golden"
    folder.mkdir(exist_ok=True)
    tokens = np.array(prompt + [0] * (UBATCH - len(prompt)), "<i4")
    (folder / "prefill.in").write_bytes(tokens.tobytes())
    (folder / "prefill.out").write_bytes(after_last.astype("<f4").tobytes())


def export(weights):
    """Write every committed file from the trained weights, float arrays by name."""
    folder = HERE / "calbin"
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "weights.safetensors", quantised(weights))
    write_json(folder / "program.json", program())
    write_json(HERE / "artifact.json", artifact())
    write_golden()


def check(lines, size=64):
    """Print the wrong answers and the share of right ones; return whether all were right."""
    weights = read_weights(np.float32)
    pairs = sorted((tuple(line.rstrip("\n").split("\t")) for line in lines),
                   key=lambda pair: len(pair[0]))
    wrong = []
    for start in range(0, len(pairs), size):
        some = pairs[start:start + size]
        wrong += [pair for pair, exact in zip(some, answered_exactly(weights, some)) if not exact]
    for text, expected in wrong:
        print(text, expected, greedy_answer(weights, text), sep="\t")
    print(f"{len(pairs) - len(wrong)} of {len(pairs)} right, {1 - len(wrong) / len(pairs):.2%}")
    return not wrong


def main():
    """Run one subcommand."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("command", choices=("golden", "check"))
    if parser.parse_args().command == "golden":
        write_golden()
        return 0
    return 0 if check(sys.stdin) else 1


if __name__ == "__main__":
    sys.exit(main())
