#!/usr/bin/env python3
"""A step of LoRA in PyTorch: the twin of benches/finetune.mjs. Prints JSON.

    python3 benches/pytorch/finetune.py --model llama-1.1b --rank 16 [--eager]

LoRA is written here by hand, as PEFT does it under autocast: the frozen weights are bf16, the adapters' matrices f32, each of q, k, v, gate and up
has an adapter of its own, whose output, times alpha / rank, is added to the layer's. Unlike PEFT's model of transformers, q, k and v are one frozen
product, and gate and up another, as in helios-lm: that is less work. The model is compiled (--eager: not); AdamW is fused; two steps are in flight.
"""

import argparse
import json
import sys

import torch
from torch import nn

from decoder import MODELS, Decoder, measure
from lib import device_name


class LoRA(nn.Module):
    """A frozen linear layer with an adapter for each part of its rows."""

    def __init__(self, base, rows, rank, alpha, dropout):
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()
        inputs = base.weight.shape[1]
        self.a = nn.ModuleList(nn.Linear(inputs, rank, bias=False) for _ in rows)
        self.b = nn.ModuleList(nn.Linear(rank, count, bias=False) for count in rows)
        for b in self.b:
            nn.init.zeros_(b.weight)

    def forward(self, x):
        parts = [b(a(self.drop(x))) * self.scale for a, b in zip(self.a, self.b)]
        return self.base(x) + (parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1))


def add_adapters(model, c, rank, dropout):
    size = c["width"] // c["heads"]
    kv = c["kv_heads"] * size
    places = {
        "qkv": [c["width"], kv, kv] if not c["gpt2"] else [3 * c["width"]],
        "out": [c["width"]],
        "up": [c["hidden"]] * (1 if c["gpt2"] else 2),
        "down": [c["width"]],
    }
    for layer in model.layers:
        for name, rows in places.items():
            setattr(layer, name, LoRA(getattr(layer, name), rows, rank, 2 * rank, dropout))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama-1.1b")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--block", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    config = MODELS[args.model]
    device = torch.device(args.device)
    cuda = device.type == "cuda"
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    with device:
        model = Decoder(config).to(torch.bfloat16)
    # As helios-lm's, so that losses can be compared.
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
        parameter.requires_grad_(False)
    with device:
        add_adapters(model, config, args.rank, args.dropout)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.01, fused=cuda)
    forward = model if args.eager else torch.compile(model)

    warmed = torch.cuda.reset_peak_memory_stats if cuda else lambda: None
    milliseconds, losses = measure(forward, optimizer, config, device, args.batch, args.block, args.steps, warmed)
    print(
        json.dumps(
            {
                "device": device_name(device),
                "series": f"PyTorch {torch.__version__}, {'eager' if args.eager else 'compiled'}",
                "model": args.model,
                "rank": args.rank,
                "precision": "bf16",
                "trained": sum(p.numel() for p in trained),
                "batch": args.batch,
                "block": args.block,
                "milliseconds": milliseconds,
                "tokensPerSecond": args.batch * args.block * 1000 / milliseconds,
                "gigabytes": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
                "reservedGigabytes": torch.cuda.max_memory_reserved() / 1e9 if cuda else None,
                "losses": losses,
            }
        )
    )


if __name__ == "__main__":
    sys.exit(main())
