#!/usr/bin/env python3
"""Train the dates model and export it.  Needed only to make the committed files again.

    apt-get install python3-torch libopenblas0-pthread
    OMP_NUM_THREADS=1 /usr/bin/python3 train.py /tmp/dates.pt

It takes 20 to 25 minutes on two cores: two Python threads work on a micro-batch each, which is
faster here than two threads inside each operation.  It prints the exact match on held-out strings
as it goes, writes a checkpoint to the path given, and calls export.py with the trained weights.
The strings come from dates.py, without end and never from the held-out part.  Nothing at run time
needs this file, PyTorch or Python.

The matrices are trained by Muon (momentum, made orthogonal by Newton-Schulz steps), the embedding
and the gains by AdamW.
"""

import argparse
import itertools
import math
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import nn

import dates
import export

STEPS = 9000
WARM_UP = 200
BATCH = 128
MICRO_BATCHES = 6
THREADS = 2
MUON_RATE = 0.01
ADAM_RATE = 8e-3
WEIGHT_DECAY = 0.01
FIRST_TOKEN_WEIGHT = 3.0
VALIDATE_EVERY = 1000
VALIDATION_STRINGS = 4000
LOSS_SCALE = BATCH * 12            # about the weights of a batch, so the loss is a mean
IGNORED = -100


def rms_norm(x, gain):
    """RMSNorm over the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + export.NORM_EPS) * gain


def rotary(length):
    """Cosines and sines [length, head_dim] for the half-split rotation."""
    frequencies = export.ROPE_THETA ** (-torch.arange(0, export.HEAD_DIM, 2) / export.HEAD_DIM)
    angles = torch.outer(torch.arange(length).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Apply the rotation to x [..., length, head_dim]."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Model(nn.Module):
    """The LLaMA architecture; the parameters carry the names of the export."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterDict({
            name.replace(".", "/"): nn.Parameter(initial(name, shape))
            for name, shape in export.tensor_shapes().items()})
        cos, sin = rotary(export.MAX_SEQ_LEN)
        mask = torch.full((export.MAX_SEQ_LEN, export.MAX_SEQ_LEN), -math.inf).triu(1)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self.register_buffer("mask", mask)

    def weight(self, name):
        """The parameter of that exported name."""
        return self.weights[name.replace(".", "/")]

    def attention(self, x, layer):
        """Causal self-attention of one layer; x is [batch, length, dim]."""
        batch, length, _ = x.shape
        names = [f"{layer}.self_attn.{part}_proj.weight" for part in "qkv"]
        qkv = F.linear(x, torch.cat([self.weight(name) for name in names]))
        q, k, v = qkv.view(batch, length, 3, export.N_HEADS, export.HEAD_DIM).permute(2, 0, 3, 1, 4)
        cos, sin = self.cos[:length], self.sin[:length]
        scale = export.HEAD_DIM ** -0.5
        scores = rotate(q, cos, sin) @ rotate(k * scale, cos, sin).transpose(-1, -2)
        mixed = (scores + self.mask[:length, :length]).softmax(-1) @ v
        joined = mixed.transpose(1, 2).reshape(batch, length, export.DIM)
        return F.linear(joined, self.weight(f"{layer}.self_attn.o_proj.weight"))

    def feed_forward(self, x, layer):
        """SwiGLU of one layer."""
        names = [f"{layer}.mlp.{part}_proj.weight" for part in ("gate", "up")]
        gate, up = F.linear(x, torch.cat([self.weight(name) for name in names])).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.weight(f"{layer}.mlp.down_proj.weight"))

    def forward(self, tokens):
        """The final hidden states [batch, length, dim] of tokens [batch, length]."""
        x = F.embedding(tokens, self.weight("model.embed_tokens.weight"))
        for number in range(export.N_LAYERS):
            layer = f"model.layers.{number}"
            gain = self.weight(f"{layer}.input_layernorm.weight")
            x = x + self.attention(rms_norm(x, gain), layer)
            gain = self.weight(f"{layer}.post_attention_layernorm.weight")
            x = x + self.feed_forward(rms_norm(x, gain), layer)
        return rms_norm(x, self.weight("model.norm.weight"))

    def logits(self, hidden):
        """The tied output layer."""
        return F.linear(hidden, self.weight("model.embed_tokens.weight"))


def initial(name, shape):
    """A tensor's values before training."""
    if len(shape) == 1:
        return torch.ones(shape)
    if "embed" in name:
        return torch.randn(shape) * 0.049
    deviation = 0.8 / math.sqrt(shape[1])
    if "o_proj" in name or "down_proj" in name:
        deviation /= math.sqrt(2 * export.N_LAYERS)
    return torch.randn(shape) * deviation


def orthogonal(matrices):
    """The nearest semi-orthogonal matrices, roughly, by five Newton-Schulz steps."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class Muon:
    """Muon over matrices, those of like shape together."""

    def __init__(self, matrices, momentum=0.95):
        self.momentum = momentum
        self.groups = {}
        for matrix in matrices:
            self.groups.setdefault(tuple(sorted(matrix.shape)), []).append(matrix)
        self.buffers = {shape: torch.zeros(len(group), *shape)
                        for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self, rate):
        """One update from the gradients."""
        for shape, group in self.groups.items():
            flipped = [tuple(matrix.shape) != shape for matrix in group]
            gradients = torch.stack([matrix.grad.T if flip else matrix.grad
                                     for matrix, flip in zip(group, flipped)])
            buffer = self.buffers[shape].lerp_(gradients, 1 - self.momentum)
            updates = orthogonal(gradients.lerp(buffer, self.momentum))
            for matrix, update, flip in zip(group, updates, flipped):
                taller = math.sqrt(max(1.0, matrix.shape[0] / matrix.shape[1]))
                matrix.mul_(1 - rate * WEIGHT_DECAY)
                matrix.sub_(update.T if flip else update, alpha=rate * taller)


def padded(pairs):
    """Tokens and targets [batch, length] of (input, answer) pairs."""
    rows = [(dates.encode(text), [*answer.encode(), dates.EOS]) for text, answer in pairs]
    length = max(len(prompt) + len(answer) for prompt, answer in rows) - 1
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    targets = torch.full((len(rows), length), IGNORED)
    for row, (prompt, answer) in enumerate(rows):
        sequence = torch.tensor(prompt + answer[:-1])
        tokens[row, :len(sequence)] = sequence
        targets[row, len(prompt) - 1:len(sequence)] = torch.tensor(answer)
    return tokens, targets


def micro_batches(pairs):
    """The pairs in a few batches of like length, so that little is padding."""
    pairs = sorted(pairs, key=lambda pair: len(pair[0].encode()) + len(pair[1]))
    size = math.ceil(len(pairs) / MICRO_BATCHES)
    return [padded(pairs[start:start + size]) for start in range(0, len(pairs), size)]


def summed_loss(model, tokens, targets):
    """The weighted sum of the cross-entropies of the answer's tokens, and of the weights."""
    wanted = targets != IGNORED
    first = wanted & (wanted.cumsum(1) == 1)
    weights = torch.where(first, FIRST_TOKEN_WEIGHT, 1.0)[wanted]
    logits = model.logits(model(tokens)[wanted])
    losses = F.cross_entropy(logits, targets[wanted], reduction="none")
    return (losses * weights).sum(), weights.sum()


@torch.no_grad()
def exact_match(model, pairs, size=250):
    """The share of pairs answered exactly: each token is the best one after those before it."""
    pairs = sorted(pairs, key=lambda pair: len(pair[0]))
    right = 0
    for start in range(0, len(pairs), size):
        tokens, targets = padded(pairs[start:start + size])
        best = model.logits(model(tokens)).argmax(-1)
        right += ((best == targets) | (targets == IGNORED)).all(1).sum().item()
    return right / len(pairs)


def add_gradients(model, batches, pool):
    """Set every parameter's gradient from the micro-batches; return the mean loss."""
    parameters = list(model.parameters())

    def one(batch):
        loss, weight = summed_loss(model, *batch)
        return (loss / weight).item(), torch.autograd.grad(loss / LOSS_SCALE, parameters)

    losses, gradients = zip(*pool.map(one, batches))
    for parameter, *parts in zip(parameters, *gradients):
        parameter.grad = sum(parts)
    return sum(losses) / len(losses)


def rate_at(step, steps):
    """The share of the full learning rate: up over the warm-up, then down to zero."""
    return min((step + 1) / WARM_UP, (steps - step) / (steps - WARM_UP))


def train(model, steps, checkpoint):
    """Train, print the progress, and save the weights as they go."""
    parameters = list(model.parameters())
    embedding = model.weight("model.embed_tokens.weight")
    gains = [p for p in parameters if p.dim() == 1]
    muon = Muon([p for p in parameters if p.dim() == 2 and p is not embedding])
    adam = torch.optim.AdamW([embedding, *gains], betas=(0.9, 0.98), weight_decay=0.0)
    strings = dates.generate(1, dates.TRAINING)
    validation = list(itertools.islice(dates.generate(2, dates.TEST), VALIDATION_STRINGS))
    pool = ThreadPoolExecutor(THREADS)
    began = time.monotonic()
    for step in range(steps):
        batches = micro_batches(list(itertools.islice(strings, BATCH)))
        loss = add_gradients(model, batches, pool)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        share = rate_at(step, steps)
        muon.step(MUON_RATE * share)
        adam.param_groups[0]["lr"] = ADAM_RATE * share
        adam.step()
        if (step + 1) % 100 == 0:
            elapsed = time.monotonic() - began
            print(f"step {step + 1}  loss {loss:.4f}  {elapsed:.0f} s", flush=True)
        if (step + 1) % VALIDATE_EVERY == 0 or step + 1 == steps:
            print(f"step {step + 1}  exact {exact_match(model, validation):.4f}", flush=True)
            torch.save(model.state_dict(), checkpoint)


def main():
    """Train, or take a checkpoint, and export."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("checkpoint", help="where the trained weights are saved")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--export-only", action="store_true", help="export a saved checkpoint")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_flush_denormal(True)
    model = Model()
    if args.export_only:
        model.load_state_dict(torch.load(args.checkpoint))
    else:
        train(model, args.steps, args.checkpoint)
    export.export({name: model.weight(name).detach().numpy() for name in export.tensor_shapes()})


if __name__ == "__main__":
    main()
