"""Goldens of helios-vk/nn: gradients and losses of small models in JAX, in float64, from weights and data that both sides
make by one formula (`values` here and in __test__/nn/goldens.test.mjs).

    pip install 'jax[cpu]'
    python scripts/goldens/generate.py            # writes __test__/nn/goldens/*.json

Run by hand, where a model here or in the test changes. Layouts and names are PyTorch's, as those of helios-vk/nn.
"""

import json
import math
import os
import platform

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

FOLDER = os.path.join(os.path.dirname(__file__), "..", "..", "__test__", "nn", "goldens")
STEPS = 20
SAMPLES = 4


def words(count, seed):
    """Words by a hash of their index (lowbias32 of Chris Wellons)."""
    h = np.arange(count, dtype=np.uint32) + np.uint32(seed * 1000003 & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x21F0AAAD)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x735A2D97)
    h ^= h >> np.uint32(15)
    return h


def values(count, seed):
    """Multiples of 2^-23 in [-1, 1): the same number as f32 and float64."""
    return (words(count, seed) >> np.uint32(8)).astype(np.float64) / 2.0**23 - 1.0


def integers(count, seed, below):
    return (words(count, seed) % np.uint32(below)).astype(np.int64)


def initial(name, shape, seed):
    """Matrices in ±2^-k, where 2^k is at most the root of their inputs; norm weights about 1; biases small."""
    count = math.prod(shape)
    own = values(count, seed).reshape(shape)
    if len(shape) > 1:
        inputs = math.prod(shape[1:])
        return own * 2.0 ** -((inputs.bit_length() - 1) // 2)
    return 1 + own / 4 if "norm" in name and name.endswith("weight") else own / 8


# ---- layers

def linear(p, name, x):
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def rms_norm(p, name, x):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * p[f"{name}.weight"]


def layer_norm(p, name, x):
    mean = jnp.mean(x, -1, keepdims=True)
    var = jnp.mean((x - mean) ** 2, -1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def rope(x):
    """Pairs (i, i + half) of [..., tokens, size] turned by position · 10000^(-2i / size)."""
    tokens, size = x.shape[-2:]
    angle = jnp.arange(tokens)[:, None] * 1e4 ** (-2.0 * jnp.arange(size // 2) / size)[None]
    # The table of the device is f32.
    cos = jnp.cos(angle).astype(jnp.float32).astype(jnp.float64)
    sin = jnp.sin(angle).astype(jnp.float32).astype(jnp.float64)
    a, b = x[..., : size // 2], x[..., size // 2 :]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(p, name, x, heads, kv_heads, causal, rotary):
    batch, tokens, width = x.shape
    size = width // heads
    qkv = linear(p, f"{name}.qkv", x).reshape(batch, tokens, heads + 2 * kv_heads, size).transpose(0, 2, 1, 3)
    q, k, v = qkv[:, :heads], qkv[:, heads : heads + kv_heads], qkv[:, heads + kv_heads :]
    if rotary:
        q, k = rope(q), rope(k)
    k, v = (jnp.repeat(t, heads // kv_heads, 1) for t in (k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(size)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((tokens, tokens), bool)), scores, -jnp.inf)
    out = jax.nn.softmax(scores, -1) @ v
    return linear(p, f"{name}.out", out.transpose(0, 2, 1, 3).reshape(batch, tokens, width))


def conv2d(p, name, x, stride=1, padding=0):
    y = jax.lax.conv_general_dilated(x, p[f"{name}.weight"], (stride, stride), [(padding, padding)] * 2)
    return y + p[f"{name}.bias"][:, None, None] if f"{name}.bias" in p else y


def cross_entropy(logits, targets):
    logits, targets = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[jnp.arange(targets.size), targets])


# ---- models: parameters by name, data, the loss

class Gpt:
    """Rotary positions, two heads for one head of keys and values, RMSNorm, SwiGLU; AdamW with clipping."""

    width, heads, kv, hidden, vocab = 64, 2, 1, 96, 19
    optimizer = {"name": "AdamW", "lr": 2.0**-10, "weightDecay": 0.125, "clip": 0.5}

    def shapes(self):
        yield "embedding.weight", (self.vocab, self.width)
        for i in range(2):
            yield f"blocks.{i}.norm1.weight", (self.width,)
            yield f"blocks.{i}.attention.qkv.weight", ((self.heads + 2 * self.kv) * self.width // self.heads, self.width)
            yield f"blocks.{i}.attention.out.weight", (self.width, self.width)
            yield f"blocks.{i}.norm2.weight", (self.width,)
            yield f"blocks.{i}.mlp.gateUp.weight", (2 * self.hidden, self.width)
            yield f"blocks.{i}.mlp.down.weight", (self.width, self.hidden)
        yield "norm.weight", (self.width,)
        yield "head.weight", (self.vocab, self.width)

    def data(self):
        ids = integers(3 * 11, 901, self.vocab).reshape(3, 11)
        return ids[:, :-1], ids[:, 1:]

    def loss(self, p, state, x, t):
        h = p["embedding.weight"][x]
        for i in range(2):
            b = f"blocks.{i}"
            h = h + attention(p, f"{b}.attention", rms_norm(p, f"{b}.norm1", h), self.heads, self.kv, True, True)
            gate, up = jnp.split(linear(p, f"{b}.mlp.gateUp", rms_norm(p, f"{b}.norm2", h)), 2, -1)
            h = h + linear(p, f"{b}.mlp.down", jax.nn.silu(gate) * up)
        return cross_entropy(linear(p, "head", rms_norm(p, "norm", h)), t), state


class Vit:
    """Patches by a convolution, a class token, learned positions, LayerNorm, biases; AdamW."""

    width, heads, patch, size, classes = 32, 4, 4, 12, 7
    optimizer = {"name": "AdamW", "lr": 2.0**-11, "weightDecay": 0.0625, "clip": 0}

    def shapes(self):
        w = self.width
        yield "patches.weight", (w, 1, self.patch, self.patch)
        yield "patches.bias", (w,)
        yield "token", (1, 1, w)
        yield "positions", (1, (self.size // self.patch) ** 2 + 1, w)
        for i in range(2):
            for norm, name, rows, columns in (("norm1", "attention.qkv", 3 * w, w), ("", "attention.out", w, w),
                                              ("norm2", "mlp.up", 2 * w, w), ("", "mlp.down", w, 2 * w)):
                if norm:
                    yield f"blocks.{i}.{norm}.weight", (w,)
                    yield f"blocks.{i}.{norm}.bias", (w,)
                yield f"blocks.{i}.{name}.weight", (rows, columns)
                yield f"blocks.{i}.{name}.bias", (rows,)
        yield "norm.weight", (w,)
        yield "norm.bias", (w,)
        yield "head.weight", (self.classes, w)
        yield "head.bias", (self.classes,)

    def data(self):
        return values(5 * self.size**2, 902).reshape(5, 1, self.size, self.size), integers(5, 903, self.classes)

    def loss(self, p, state, x, t):
        y = conv2d(p, "patches", x, self.patch)
        h = y.reshape(*y.shape[:2], -1).transpose(0, 2, 1)
        h = jnp.concatenate([jnp.broadcast_to(p["token"], (x.shape[0], 1, self.width)), h], 1) + p["positions"]
        for i in range(2):
            b = f"blocks.{i}"
            h = h + attention(p, f"{b}.attention", layer_norm(p, f"{b}.norm1", h), self.heads, self.heads, False, False)
            h = h + linear(p, f"{b}.mlp.down", jax.nn.gelu(linear(p, f"{b}.mlp.up", layer_norm(p, f"{b}.norm2", h)), approximate=True))
        return cross_entropy(linear(p, "head", layer_norm(p, "norm", h)[:, 0]), t), state


class Gru:
    """Letters to letters; SGD with Nesterov momentum."""

    hidden, columns, vocab = 16, 8, 11
    optimizer = {"name": "SGD", "lr": 0.25, "momentum": 0.875, "nesterov": True, "weightDecay": 0.0078125, "clip": 0}

    def shapes(self):
        yield "embedding.weight", (self.vocab, self.columns)
        yield "gru.weight_ih_l0", (3 * self.hidden, self.columns)
        yield "gru.weight_hh_l0", (3 * self.hidden, self.hidden)
        yield "gru.bias_ih_l0", (3 * self.hidden,)
        yield "gru.bias_hh_l0", (3 * self.hidden,)
        yield "head.weight", (self.vocab, self.hidden)
        yield "head.bias", (self.vocab,)

    def data(self):
        ids = integers(4 * 10, 904, self.vocab).reshape(4, 10)
        return ids[:, :-1], ids[:, 1:]

    def loss(self, p, state, x, t):
        h, all_h = jnp.zeros((x.shape[0], self.hidden)), []
        for step in range(x.shape[1]):
            e = p["embedding.weight"][x[:, step]]
            a = jnp.split(e @ p["gru.weight_ih_l0"].T + p["gru.bias_ih_l0"], 3, -1)
            b = jnp.split(h @ p["gru.weight_hh_l0"].T + p["gru.bias_hh_l0"], 3, -1)
            r, z = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
            n = jnp.tanh(a[2] + r * b[2])
            h = (1 - z) * n + z * h
            all_h.append(h)
        return cross_entropy(linear(p, "head", jnp.stack(all_h, 1)), t), state


class Cnn:
    """Convolutions with padding and stride, batch and group normalization, both pools; AdamW."""

    classes = 6
    optimizer = {"name": "AdamW", "lr": 2.0**-8, "weightDecay": 0, "clip": 0}

    def shapes(self):
        # Without a bias: before a normalization by channel its gradient is 0, of which Adam makes steps of either sign.
        yield "conv1.weight", (8, 2, 3, 3)
        yield "norm1.weight", (8,)
        yield "norm1.bias", (8,)
        yield "conv2.weight", (12, 8, 3, 3)
        yield "conv2.bias", (12,)
        yield "norm2.weight", (12,)
        yield "norm2.bias", (12,)
        yield "head.weight", (self.classes, 12 * 2 * 2)
        yield "head.bias", (self.classes,)

    def data(self):
        return values(6 * 2 * 14 * 14, 905).reshape(6, 2, 14, 14), integers(6, 906, self.classes)

    def state(self):
        return {"norm1.running_mean": jnp.zeros(8), "norm1.running_var": jnp.ones(8)}

    def loss(self, p, state, x, t):
        column = lambda v: v[:, None, None]
        h = conv2d(p, "conv1", x, 1, 1)
        mean, var = jnp.mean(h, (0, 2, 3)), jnp.var(h, (0, 2, 3))
        count = h.size // h.shape[1]
        state = {
            "norm1.running_mean": 0.9 * state["norm1.running_mean"] + 0.1 * mean,
            "norm1.running_var": 0.9 * state["norm1.running_var"] + 0.1 * var * count / (count - 1),
        }
        h = (h - column(mean)) / jnp.sqrt(column(var) + 1e-5) * column(p["norm1.weight"]) + column(p["norm1.bias"])
        h = jax.lax.reduce_window(jax.nn.relu(h), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        h = conv2d(p, "conv2", h, 2, 1)
        rows = h.reshape(h.shape[0], 3, -1)
        rows = (rows - rows.mean(-1, keepdims=True)) / jnp.sqrt(rows.var(-1, keepdims=True) + 1e-5)
        h = rows.reshape(h.shape) * column(p["norm2.weight"]) + column(p["norm2.bias"])
        h = jax.nn.silu(h)
        h = jax.lax.reduce_window(h, 0.0, jax.lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4
        h = h.reshape(h.shape[0], -1)
        return cross_entropy(linear(p, "head", h), t), state


# ---- optimizers, as PyTorch's

def optimizer_step(options, p, g, memory, step):
    if options["clip"]:
        norm = math.sqrt(sum(float(jnp.sum(v * v)) for v in g.values()))
        g = {k: v * min(1.0, options["clip"] / (norm + 1e-6)) for k, v in g.items()}
    new = {}
    for name, w in p.items():
        d = g[name]
        if options["name"] == "AdamW":
            m, v = memory.get(name, (0.0, 0.0))
            m, v = 0.9 * m + 0.1 * d, 0.999 * v + 0.001 * d * d
            memory[name] = (m, v)
            w = w - options["lr"] * options["weightDecay"] * w
            new[name] = w - options["lr"] * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8)
        else:
            d = d + options["weightDecay"] * w
            v = options["momentum"] * memory.get(name, 0.0) + d
            memory[name] = v
            new[name] = w - options["lr"] * (d + options["momentum"] * v)
    return new


def rounded(x):
    return float(f"{float(x):.10g}")


def golden(name, model):
    p = {key: jnp.asarray(initial(key, shape, i + 1)) for i, (key, shape) in enumerate(model.shapes())}
    x, t = model.data()
    state = model.state() if hasattr(model, "state") else {}
    run = jax.jit(jax.value_and_grad(model.loss, has_aux=True))
    losses, memory, gradients = [], {}, []
    for step in range(1, STEPS + 1):
        (loss, state), g = run(p, state, x, t)
        losses.append(rounded(loss))
        if step == 1:
            for i, (key, own) in enumerate(g.items()):
                flat = own.reshape(-1)
                at = sorted({int(v) for v in integers(SAMPLES, 500 + i, flat.size)})
                gradients.append({
                    "name": key,
                    "shape": list(own.shape),
                    "norm": rounded(jnp.sqrt(jnp.sum(flat * flat))),
                    "samples": [[k, rounded(flat[k])] for k in at],
                })
        p = optimizer_step(model.optimizer, p, g, memory, step)
    versions = {"jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
    result = {"model": name, "versions": versions, "precision": "float64", "optimizer": model.optimizer, "losses": losses,
              "gradients": gradients, "state": {key: [rounded(v) for v in own] for key, own in state.items()}}
    order = [key for key, _ in model.shapes()]
    result["gradients"].sort(key=lambda g: order.index(g["name"]))
    with open(os.path.join(FOLDER, f"{name}.json"), "w") as file:
        # A parameter a line.
        text = json.dumps({**result, "gradients": "@"}, indent=2)
        lines = ",\n".join("    " + json.dumps(g) for g in result["gradients"])
        file.write(text.replace('"@"', f"[\n{lines}\n  ]") + "\n")
    print(name, losses[0], losses[-1])


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    for key, model in {"gpt": Gpt(), "vit": Vit(), "gru": Gru(), "cnn": Cnn()}.items():
        golden(key, model)
