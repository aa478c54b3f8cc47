#!/usr/bin/env python3
"""The models of benches/lib/models.mjs in PyTorch, for benches/models.mjs: it starts this and asks over pipes.

Each line of standard input is a JSON object, and each is answered by one line of JSON:

    {"do": "info"}
    {"do": "prepare", "model": "mlp", "sizes": {...}, "weights": PATH, "batch": PATH, "lr": 1e-3,
     "precision": "f32" | "bf16", "mode": "eager" | "compiled" | "graphs" | "compiled-graphs", "check": steps} -> {"losses": [...]}
    {"do": "run", "steps": n}                                            -> {"milliseconds": t, "loss": x}
    {"do": "operations", "count": n, "size": n}                          -> {"microseconds": {"add": t, "add, calls": t,
     "matmul": t, "matmul, calls": t}}

`precision` bf16 is autocast with f32 parameters; f32 is without TF32. `graphs` captures the whole step, with the optimizer, as one CUDA graph;
`compiled-graphs` does that with the compiled model. Needs PyTorch 2.4 or later.
"""

import time

import torch
import torch.nn.functional as F

from lib import DEVICE, exact_f32, read_safetensors, seconds_of, serve, synchronize
from networks import NETWORKS


class Mlp(torch.nn.Module):
    def __init__(self, inputs, width, classes, **_):
        super().__init__()
        self.first = torch.nn.Linear(inputs, width)
        self.second = torch.nn.Linear(width, width)
        self.third = torch.nn.Linear(width, classes)

    def forward(self, x, t):
        x = F.gelu(self.first(x), approximate="tanh")
        x = F.gelu(self.second(x), approximate="tanh")
        return F.cross_entropy(self.third(x).float(), t)


class Gru(torch.nn.Module):
    def __init__(self, letters, width, hidden, layers=1, **_):
        super().__init__()
        self.embedding = torch.nn.Embedding(letters, width)
        self.gru = torch.nn.GRU(width, hidden, layers, batch_first=True)
        self.head = torch.nn.Linear(hidden, letters)

    def forward(self, x, t):
        y, _ = self.gru(self.embedding(x))
        logits = self.head(y).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), t.reshape(-1))


class Regression(torch.nn.Module):
    def __init__(self, inputs, hidden, **_):
        super().__init__()
        self.first = torch.nn.Linear(inputs, hidden)
        self.second = torch.nn.Linear(hidden, 1)

    def forward(self, x, t):
        return F.mse_loss(self.second(F.gelu(self.first(x), approximate="tanh")).float(), t)


class Attention(torch.nn.Module):
    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.causal = causal
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Feedforward(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(torch.nn.Module):
    def __init__(self, width, heads, causal=False):
        super().__init__()
        self.norm1 = torch.nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.norm2 = torch.nn.LayerNorm(width)
        self.mlp = Feedforward(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(torch.nn.Module):
    def __init__(self, size, patch, width, heads, layers, classes, **_):
        super().__init__()
        self.grid, self.patch = size // patch, patch
        self.patches = torch.nn.Linear(3 * patch * patch, width)
        self.positions = torch.nn.Embedding(self.grid * self.grid, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, classes)

    def forward(self, x, t):
        grid, patch = self.grid, self.patch
        cut = x.view(-1, 3, grid, patch, grid, patch).permute(0, 2, 4, 1, 3, 5)
        h = self.patches(cut.reshape(x.shape[0], grid * grid, 3 * patch * patch)) + self.positions.weight
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h).mean(1)).float(), t)


class Gpt(torch.nn.Module):
    def __init__(self, letters, block, width, heads, layers, **_):
        super().__init__()
        self.embedding = torch.nn.Embedding(letters, width)
        self.positions = torch.nn.Embedding(block, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads, True) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, letters, bias=False)

    def forward(self, x, t):
        h = self.embedding(x) + self.positions.weight
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), t.reshape(-1))


MODELS = {"mlp": Mlp, "gru": Gru, "vit": Vit, "tiny": Regression, "digits": Mlp, "gru2": Gru, "gpt": Gpt, **NETWORKS}


class Training:
    def __init__(self, request):
        exact_f32()
        self.model = MODELS[request["model"]](**request["sizes"]).to(DEVICE)
        # Counts of batches are not in the file.
        unread = self.model.load_state_dict(read_safetensors(request["weights"])[0], strict=False)
        if unread.unexpected_keys or any(not key.endswith("num_batches_tracked") for key in unread.missing_keys):
            raise ValueError(f"the weights do not fit: {unread}")
        self.model = self.model.to(memory_format=torch.channels_last)
        batch, _ = read_safetensors(request["batch"])
        x, t = (batch[name].to(DEVICE) for name in ("x", "t"))
        x = x.to(memory_format=torch.channels_last) if x.dim() == 4 else x
        self.inputs, self.targets = (v.long() if v.dtype == torch.int32 else v for v in (x, t))
        mode = request["mode"]
        captured = mode.endswith("graphs")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=request["lr"], fused=DEVICE.type == "cuda", capturable=captured)
        self.forward = torch.compile(self.model) if mode.startswith("compiled") else self.model
        self.half = request["precision"] == "bf16"
        self.graph = None
        if captured:
            self.capture()

    def capture(self):
        """Captures a step. The steps that warm up change parameters and moments: they begin anew."""
        before = [p.detach().clone() for p in self.model.parameters()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = self.step()
        with torch.no_grad():
            for p, value in zip(self.model.parameters(), before):
                p.copy_(value)
            for state in self.optimizer.state.values():
                for value in state.values():
                    value.zero_()
        self.graph = graph

    def step(self):
        if self.graph:
            self.graph.replay()
            return self.loss
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=self.half):
            loss = self.forward(self.inputs, self.targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def operations(count, size):
    """Host microseconds of an eager operation until the device has ended, and of the calls by themselves."""
    a, b = torch.rand(size, size, device=DEVICE), torch.rand(size, size, device=DEVICE)
    result = {}
    for name, operation in (("add", torch.add), ("matmul", torch.matmul)):
        for timed in (False, True):
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                operation(a, b)
            result[f"{name}, calls"] = (time.perf_counter() - start) / count * 1e6
            synchronize()
            result[name] = (time.perf_counter() - start) / count * 1e6
    return result


class Side:
    def prepare(self, request):
        self.training = None
        torch.compiler.reset()
        self.training = Training(request)
        return {"losses": [self.training.step().item() for _ in range(request["check"])]}

    def run(self, request):
        def steps():
            for _ in range(request["steps"]):
                loss = self.training.step()
            return loss

        seconds, loss = seconds_of(steps)
        return {"milliseconds": seconds * 1000, "loss": loss.item()}


if __name__ == "__main__":
    side = Side()
    serve(
        {
            "prepare": side.prepare,
            "run": side.run,
            "operations": lambda request: {"microseconds": operations(request["count"], request["size"])},
        }
    )
