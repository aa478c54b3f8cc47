#!/usr/bin/env python3
"""A Llama-shaped model whose parameters are sharded over processes (FSDP2) in PyTorch, as `benches/train.mjs --zero 3` trains it.

    torchrun --nproc-per-node 2 benches/pytorch/fsdp.py --model llama-7b --batch 4 --json fsdp.json

Parameters are f32 and gathered in bf16 a layer at a time, gradients are reduced in f32, each layer computes its forward pass again in the
backward pass (checkpoint_wrapper) and is compiled by itself (--eager: not), gradients are clipped to a norm of 1, AdamW is fused. Ids and weights
are random. Prints tokens a second of all processes (median over the steps after --warmup) and the most memory of rank 0.
Needs PyTorch 2.6 or later and a CUDA device for each process (--device cpu --model tiny works too, slowly).
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from decoder import MODELS, Decoder
from lib import device_name
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

MODELS = {
    **MODELS,
    # The preset of helios-lm.
    "llama-7b": dict(vocab=32_000, width=4096, layers=32, heads=32, kv_heads=32, hidden=11_008, context=2048, gpt2=False),
}


def build(config, device, compiled):
    """The model in shards: made without memory first, as no device needs room for all of it."""
    with torch.device("meta"):
        model = Decoder(config)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for i, layer in enumerate(model.layers):
        layer = checkpoint_wrapper(layer, preserve_rng_state=False)
        if compiled:
            layer = torch.compile(layer)
        model.layers[i] = layer
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            local = parameter.to_local()
            if parameter.ndim == 1:
                local.fill_(1.0)
            else:
                local.normal_(0, 0.02)
        size = config["width"] // config["heads"]
        angles = torch.arange(config["context"], device=device)[:, None] * 1e4 ** (-torch.arange(0, size, 2, device=device) / size)[None]
        model.table.copy_(torch.stack([angles.cos(), angles.sin()]))
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama-7b")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step of each process")
    parser.add_argument("--block", type=int, help="the model's context when left out")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", help="file for the results")
    args = parser.parse_args()
    cuda = args.device == "cuda"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    config = MODELS[args.model]
    block = args.block or config["context"]
    torch.manual_seed(1 + rank)
    model = build(config, device, not args.eager)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=cuda)

    losses, times = [], []
    for step in range(args.steps):
        ids = torch.randint(config["vocab"], (args.batch, block + 1), device=device)
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        loss = model(ids[:, :-1], ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    tokens = args.batch * block * size
    rates = [tokens / seconds for seconds in times[min(args.warmup, args.steps - 1) :]]
    result = {
        "device": device_name(device),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,
        "model": args.model,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "processes": size,
        "compiled": not args.eager,
        "batch": args.batch,
        "block": block,
        "tokensPerSecond": statistics.median(rates),
        "perStep": rates,
        "peakBytes": torch.cuda.max_memory_allocated() if cuda else 0,
        "reservedBytes": torch.cuda.max_memory_reserved() if cuda else 0,
        "losses": losses,
    }
    if rank == 0:
        print(json.dumps(result))
        if args.json:
            with open(args.json, "w") as file:
                json.dump(result, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
