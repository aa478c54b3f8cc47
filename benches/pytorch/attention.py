#!/usr/bin/env python3
"""Times PyTorch's fused attention at the shapes of `benches/kernels.mjs`: causal, 16 heads of 64, 512 tokens.

    python3 benches/pytorch/attention.py [--types f32,bf16,f16] [--batches 1,4,16] [--tokens 512] [--head-size 64] [--json FILE]

Half precision runs FlashAttention and cuDNN's kernels, f32 the memory-efficient ones. Queries, keys and values lie in one fused
[batch, tokens, 3, heads, head size] tensor, as in the trainer. Each figure is the median over samples of CUDA graphs that hold
many calls on rotating inputs, so that neither the host nor the cache decides it; microseconds.
"""

import argparse
import json
import statistics
from time import perf_counter

import torch

HEADS = 16
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
aten = torch.ops.aten


def calls(kind, batch, backend, tokens, head_size):
    """Forward and backward as functions of no arguments, on fresh random data."""
    qkv = 2 * torch.rand(batch, tokens, 3, HEADS, head_size, device="cuda") - 1
    q, k, v = (x.transpose(1, 2) for x in qkv.to(TYPES[kind]).unbind(2))
    grad = (2 * torch.rand(batch, tokens, HEADS, head_size, device="cuda") - 1).to(TYPES[kind]).transpose(1, 2)
    if kind == "f32":
        forward = lambda: aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, True)
        out, lse, seed, offset = forward()
        backward = lambda: aten._scaled_dot_product_efficient_attention_backward(
            grad, q, k, v, None, out, lse, seed, offset, 0.0, [True, True, True, False], True
        )
    elif backend == "cudnn":
        forward = lambda: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)
        out, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = forward()
        backward = lambda: aten._scaled_dot_product_cudnn_attention_backward(
            grad, q, k, v, out, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, True
        )
    else:
        forward = lambda: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
        out, lse, cum_q, cum_k, max_q, max_k, seed, offset, _ = forward()
        backward = lambda: aten._scaled_dot_product_flash_attention_backward(
            grad, q, k, v, out, lse, cum_q, cum_k, max_q, max_k, 0.0, True, seed, offset
        )
    reference = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    error = ((out.double() - reference).norm() / reference.norm()).item()
    assert error < (1e-5 if kind == "f32" else 2e-2), f"{kind}: off by {error}"
    return forward, backward


def time(functions, rounds=10, samples=25):
    """Median microseconds of a call."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for function in functions:
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for function in functions:
                function()
    begun = perf_counter()
    while perf_counter() - begun < 0.2:  # the clocks rise
        graph.replay()
        torch.cuda.synchronize()
    times = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(end) / rounds / len(functions))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default="f32,bf16,f16")
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--json")
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}; µs, median")
    results = []
    for kind in options.types.split(","):
        for backend in ["efficient"] if kind == "f32" else ["flash", "cudnn"]:
            for batch in map(int, options.batches.split(",")):
                try:
                    made = [calls(kind, batch, backend, options.tokens, options.head_size) for _ in range({1: 8, 4: 4}.get(batch, 2))]
                except RuntimeError as error:
                    print(f"{kind:5} {backend:9} batch {batch:3}  {error}")
                    continue
                forward, backward = time([f for f, _ in made]), time([b for _, b in made])
                results.append({"type": kind, "backend": backend, "batch": batch, "forward": forward, "backward": backward})
                print(f"{kind:5} {backend:9} batch {batch:3}  forward {forward:8.1f}  backward {backward:8.1f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
