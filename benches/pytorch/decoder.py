#!/usr/bin/env python3
"""The models of benches/decoder.mjs in PyTorch: tokens a second of a training step in bf16 autocast, and memory.

    python3 benches/pytorch/decoder.py --model gpt2-124m --batch 16 --json

As there: random ids, weights as the constructors make them, AdamW (fused) over all parameters, no clipping, two steps in flight, the median of
the timed steps after the warm-up. The model is compiled (--eager: not), attention is scaled_dot_product_attention, and the head and the loss are
those of the model: logits in bf16, losses in f32. Needs PyTorch 2.5 or later and a CUDA device (--device cpu works too, slowly).
"""

import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

from lib import device_name

# As MODELS of benches/decoder.mjs.
MODELS = {
    "gpt2-124m": dict(vocab=50_304, width=768, layers=12, heads=12, kv_heads=12, hidden=3072, context=1024, gpt2=True),
    "llama-1.1b": dict(vocab=32_768, width=2048, layers=16, heads=32, kv_heads=8, hidden=8192, context=2048, gpt2=False),
    "tiny": dict(vocab=256, width=64, layers=2, heads=4, kv_heads=2, hidden=128, context=64, gpt2=False),
}


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, gpt2 = c["width"], c["gpt2"]
        self.heads, self.kv_heads, self.size, self.gpt2 = c["heads"], c["kv_heads"], width // c["heads"], gpt2
        norm = nn.LayerNorm if gpt2 else nn.RMSNorm
        self.attention_norm, self.mlp_norm = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * self.size, bias=gpt2)
        self.out = nn.Linear(width, width, bias=gpt2)
        self.up = nn.Linear(width, c["hidden"] if gpt2 else 2 * c["hidden"], bias=gpt2)
        self.down = nn.Linear(c["hidden"], width, bias=gpt2)

    def forward(self, x, table):
        batch, tokens, width = x.shape
        parts = self.qkv(self.attention_norm(x)).split([n * self.size for n in (self.heads, self.kv_heads, self.kv_heads)], dim=-1)
        q, k, v = (part.view(batch, tokens, -1, self.size).transpose(1, 2) for part in parts)
        if table is not None:
            q, k = rotated(q, table), rotated(k, table)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads < self.heads)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        h = self.up(self.mlp_norm(x))
        if self.gpt2:
            return x + self.down(F.gelu(h, approximate="tanh"))
        gate, up = h.chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


def rotated(x, table):
    """Rotary positions, by halves of a head as in Llama. x [batch, heads, tokens, size], table [2, tokens, size / 2]."""
    cos, sin = table.to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        gpt2 = c["gpt2"]
        self.embedding = nn.Embedding(c["vocab"], c["width"])
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.positions = nn.Embedding(c["context"], c["width"]) if gpt2 else None
        if gpt2:
            nn.init.normal_(self.positions.weight, std=0.02)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.norm = (nn.LayerNorm if gpt2 else nn.RMSNorm)(c["width"], eps=1e-5)
        self.head = nn.Linear(c["width"], c["vocab"], bias=False)
        if gpt2:
            self.head.weight = self.embedding.weight
        else:
            size = c["width"] // c["heads"]
            angles = torch.arange(c["context"])[:, None] * 5e5 ** (-torch.arange(0, size, 2) / size)[None]
            self.register_buffer("table", torch.stack([angles.cos(), angles.sin()]), persistent=False)
        self.gpt2 = gpt2

    def forward(self, ids, targets):
        tokens = ids.shape[1]
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens]
        table = None if self.gpt2 else self.table[:, :tokens]
        for layer in self.layers:
            x = layer(x, table)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def measure(forward, optimizer, config, device, batch, block, steps, warmed=lambda: None):
    """Trains on random ids, and calls `warmed` before the steps that count: their median in milliseconds, and the losses of the first and the last."""
    cuda = device.type == "cuda"

    def random(salt):
        # As in benches/decoder.mjs: multiples of 2^32 divided by the golden ratio.
        values = (torch.arange(batch * block, dtype=torch.int64) + salt) * 0x9E3779B1 % 2**32 % config["vocab"]
        return values.view(batch, block).to(device)

    ids, targets = random(1), random(2)

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            loss = forward(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    losses, times, events = [], [], []
    warmup = 6
    last = time.perf_counter()
    for i in range(warmup + steps):
        losses.append(step())
        if cuda:
            events.append(torch.cuda.Event())
            events[-1].record()
            if i > 0:
                events[i - 1].synchronize()
        now = time.perf_counter()
        if i >= warmup:
            times.append(now - last)
        if i == warmup - 1:
            warmed()
        last = now
    return 1000 * statistics.median(times), [losses[0].item(), losses[-1].item()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--block", type=int, help="the model's context when left out")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    config = MODELS[args.model]
    block = args.block or config["context"]
    device = torch.device(args.device)
    cuda = device.type == "cuda"
    # Parameters' products are in bf16; what is left in f32 may use TF32.
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    model = Decoder(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=cuda)
    forward = model if args.eager else torch.compile(model)

    milliseconds, losses = measure(forward, optimizer, config, device, args.batch, block, args.steps)
    parameters = sum(p.numel() for p in model.parameters())
    result = {
        "device": device_name(device),
        "torch": torch.__version__,
        "model": args.model,
        "parameters": parameters,
        "precision": "bf16",
        "compiled": not args.eager,
        "batch": args.batch,
        "block": block,
        "milliseconds": milliseconds,
        "tokensPerSecond": args.batch * block * 1000 / milliseconds,
        "gigabytes": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
        "losses": losses,
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"{args.model} ({parameters / 1e6:.1f}M), PyTorch {torch.__version__}, {'eager' if args.eager else 'compiled'}, bf16, "
            f"{args.batch} x {block}: {milliseconds:.1f} ms, {result['tokensPerSecond']:.0f} tok/s, "
            f"{result['gigabytes'] or 0:.2f} GB, loss {result['losses'][0]:.3f} to {result['losses'][1]:.3f}"
        )


if __name__ == "__main__":
    sys.exit(main())
