#!/usr/bin/env python3
"""The GPT of the presets gpt-… (family helios-gpt of helios-lm) in PyTorch: the same weights, the same batches, the same optimizer.

    node benches/train.mjs --preset gpt-300m --steps 20 --dump-weights weights.safetensors --dump-batches batches.safetensors
    python3 benches/pytorch/train.py --weights weights.safetensors --batches batches.safetensors \\
        --modes f32,tf32,bf16,tf32-compiled,bf16-compiled --json pytorch.json

Under torchrun each process has a device of its own and an equal share of the micro-steps of every step (DistributedDataParallel):

    torchrun --nproc-per-node 2 benches/pytorch/train.py --weights … --batches … --modes bf16

A mode is the arithmetic (f32, tf32, bf16) and, after dashes, any of: `compiled` (torch.compile), with it `graphs` (its mode reduce-overhead: CUDA
graphs) or `autotuned` (its mode max-autotune: products of Triton's where they are faster, and CUDA graphs), and `cudnn` (cuDNN's attention and no other;
PyTorch 2.11 on an H100 is as fast without being asked for it, so that it seems to be its own choice).

Prints, for each mode, the loss of every step and tokens a second (median over the steps after --warmup).
Needs PyTorch 2.4 or later and a CUDA device (--device cpu works too, slowly).
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from lib import device_name, read_safetensors

# What torch.compile calls them.
COMPILE_MODES = {"graphs": "reduce-overhead", "autotuned": "max-autotune"}


class Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        width, hidden = config["width"], config["hidden"]
        self.heads = config["heads"]
        self.attentionNorm = torch.nn.RMSNorm(width, eps=1e-5)
        self.attention = torch.nn.ModuleDict(
            {
                "qkv": torch.nn.Linear(width, 3 * width, bias=False),
                "out": torch.nn.Linear(width, width, bias=False),
            }
        )
        self.mlpNorm = torch.nn.RMSNorm(width, eps=1e-5)
        self.mlp = torch.nn.ModuleDict(
            {
                "up": torch.nn.Linear(width, 2 * hidden, bias=False),
                "down": torch.nn.Linear(hidden, width, bias=False),
            }
        )

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.attention["qkv"](self.attentionNorm(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention["out"](mixed.transpose(1, 2).reshape(batch, length, width))
        gate, up = self.mlp["up"](self.mlpNorm(x)).chunk(2, dim=-1)
        return x + self.mlp["down"](F.silu(gate) * up)


class Gpt(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = torch.nn.Embedding(config["vocabSize"], config["width"])
        self.positions = torch.nn.Embedding(config["blockSize"], config["width"])
        self.layers = torch.nn.ModuleList(Layer(config) for _ in range(config["layers"]))
        self.norm = torch.nn.RMSNorm(config["width"], eps=1e-5)
        self.head = torch.nn.Linear(config["width"], config["vocabSize"], bias=False)

    def forward(self, ids, targets):
        x = self.embedding(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


def learning_rate(config, step):
    """Linear warm-up, then a cosine: learningRateAt of settings.mjs."""
    lr, floor, warmup, steps = config["learningRate"], config["minLr"], config["warmupSteps"], config["maxSteps"]
    if step + 1 <= warmup:
        return lr * (step + 1) / warmup
    done = 1.0 if step + 1 >= steps else (step + 1 - warmup) / (steps - warmup)
    return floor + 0.5 * (lr - floor) * (1 + math.cos(math.pi * done))


def run(mode, config, weights, batches, warmup, device):
    arithmetic, *options = mode.split("-")
    unknown = set(options) - {"compiled", *COMPILE_MODES, "cudnn"}
    if arithmetic not in ("f32", "tf32", "bf16") or unknown or (set(options) & COMPILE_MODES.keys() and "compiled" not in options):
        sys.exit(f"unknown mode {mode}: expected f32, tf32 or bf16, then -compiled, with it -graphs or -autotuned, and -cudnn")
    compile_mode = next((COMPILE_MODES[option] for option in options if option in COMPILE_MODES), None)
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    torch.backends.cudnn.allow_tf32 = arithmetic == "tf32"
    torch.set_float32_matmul_precision("high" if arithmetic == "tf32" else "highest")

    model = Gpt(config).to(device)
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": config["weightDecay"]}, {"params": plain, "weight_decay": 0.0}],
        lr=config["learningRate"],
        betas=(config["beta1"], config["beta2"]),
        eps=config["epsilon"],
        fused=device.type == "cuda",
    )
    forward = torch.compile(model, mode=compile_mode) if "compiled" in options else model
    if compile_mode:
        # A graph's results are overwritten by its next launch, so gradients that micro-steps add up to lie in memory of their own.
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
    several = dist.is_initialized()
    if several:
        forward = DistributedDataParallel(forward, device_ids=[device.index], gradient_as_bucket_view=True)

    def mark():
        """A point in the device's time: steps are timed end to end, and the host may run ahead."""
        if device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    losses = []
    steps, micro_steps = batches.shape[:2]
    marks = [mark()]
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step)
        total = torch.zeros((), device=device)
        for micro in range(micro_steps):
            ids, targets = batches[step, micro].to(device, non_blocking=True).long()
            # Gradients travel once a step, with the last micro-step.
            alone = forward.no_sync() if several and micro + 1 < micro_steps else contextlib.nullcontext()
            if compile_mode:
                torch.compiler.cudagraph_mark_step_begin()
            with alone, sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if "cudnn" in options else contextlib.nullcontext():
                with torch.autocast(device.type, torch.bfloat16, enabled=arithmetic == "bf16"):
                    loss = forward(ids, targets) / micro_steps
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config["maxGradNorm"] or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=not compile_mode)
        losses.append(total)
        marks.append(mark())
    if device.type == "cuda":
        torch.cuda.synchronize()
        seconds = [a.elapsed_time(b) / 1000 for a, b in zip(marks, marks[1:])]
    else:
        seconds = [b - a for a, b in zip(marks, marks[1:])]
    tokens = batches[0, :, 0].numel()
    if several:
        losses = torch.stack(losses)
        dist.all_reduce(losses, op=dist.ReduceOp.AVG)
        tokens *= dist.get_world_size()
    losses = [loss.item() for loss in losses]
    rates = [tokens / s for s in seconds[min(warmup, steps - 1) :]]
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return {
        "mode": mode,
        "losses": losses,
        "tokensPerSecond": statistics.median(rates),
        "tokensPerSecondLow": min(rates),
        "tokensPerSecondHigh": max(rates),
        "peakBytes": peak,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", required=True, help="file of benches/train.mjs --dump-weights")
    parser.add_argument("--batches", required=True, help="file of benches/train.mjs --dump-batches")
    parser.add_argument("--modes", help="see above", default="f32,tf32,bf16,tf32-compiled,bf16-compiled")
    parser.add_argument("--warmup", type=int, default=5, help="steps left out of the median (default 5)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    for name in ("weights", "batches"):
        path = getattr(args, name)
        if args.json and os.path.exists(args.json) and os.path.exists(path) and os.path.samefile(args.json, path):
            parser.error(f"--json {args.json}: --{name} reads the same file")

    weights, _ = read_safetensors(args.weights)
    tensors, metadata = read_safetensors(args.batches)
    config = json.loads(metadata["config"])
    if config["family"] != "helios-gpt":
        sys.exit(f"{args.batches} is of a model of the family {config['family']}; helios-gpt is known here")
    batches = tensors["batches"]
    device = torch.device(args.device)
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size > 1:
        if device.type != "cuda" or batches.shape[1] % size:
            sys.exit(f"{size} processes need a CUDA device each and a multiple of {size} micro-steps, not {batches.shape[1]}")
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
        share = batches.shape[1] // size
        batches = batches[:, rank * share : (rank + 1) * share].contiguous()
    if device.type == "cuda":
        batches = batches.pin_memory()
    name = device_name(device)
    if rank == 0:
        print(f"PyTorch {torch.__version__} on {size} × {name}, {tuple(batches.shape)} batches each")

    results = []
    for mode in args.modes.split(","):
        torch.compiler.reset()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            result = run(mode, config, weights, batches, args.warmup, device)
        except Exception as error:  # for instance no Triton for the compiled modes: the others still count
            if size > 1:  # the other processes would wait for this one
                raise
            results.append({"mode": mode, "error": str(error)})
            print(f"{mode:>14}  failed: {error}", flush=True)
            continue
        results.append(result)
        if rank > 0:
            continue
        first, last = result["losses"][0], result["losses"][-1]
        print(f"{mode:>14}  {result['tokensPerSecond']:>10,.0f} tok/s  loss {first:.6f} -> {last:.6f}", flush=True)
    if args.json and rank == 0:
        with open(args.json, "w") as file:
            json.dump(
                {"torch": torch.__version__, "device": name, "processes": size, "config": config, "results": results}, file, indent=1
            )
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
