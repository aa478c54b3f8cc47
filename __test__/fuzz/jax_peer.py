#!/usr/bin/env python3
"""The JAX side of jax.mjs: computes the program of each line of standard input (JSON) and answers with what differs from the
results that came with it. `pip install 'jax[cpu]'` is all that it needs.

A program is computed in float32 as it is, and in float64: once exactly, and several times with the operands of every operation that
rounds multiplied by 1 + e, |e| <= NOISE, with results and gradients beyond float32 infinite. How far these lie apart says how far
rounding may carry an element, however badly the program is conditioned. Each program is compiled as a whole: one operation at a time,
JAX compiles every operation for every shape.
"""

import base64
import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
# Compiling is what takes time. Conversions to 16 bits are part of the programs, so they are kept.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_allow_excess_precision=false"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)

NOISE = 4e-7
NOISY_RUNS = 4
# Noises that a run draws from.
NOISES = 1 << 16
# An element may lie this many times the spread of the float64 runs beyond them, and this much of itself. Denormals may be zeros.
SPREADS = 4
RELATIVE = 1e-5
ABSOLUTE = 2.0**-125
OF_LARGEST = 5e-7
F32_MAX = float(np.finfo(np.float32).max)


@jax.custom_vjp
def fits(x):
    """x, with infinities and denormals as float32 has them; its gradient likewise."""
    small = jnp.round(x * 2.0**149) * 2.0**-149
    return jnp.where(jnp.abs(x) > F32_MAX, jnp.sign(x) * jnp.inf, jnp.where(jnp.abs(x) < 2.0**-126, small, x))


fits.defvjp(lambda x: (fits(x), None), lambda _, g: (fits(g),))


@jax.custom_vjp
def scaled(x, forth, back):
    """x · forth, whose gradient is scaled by another factor: exact operations on noisy operands have consistent gradients."""
    return x * forth


scaled.defvjp(lambda x, forth, back: (x * forth, back), lambda back, g: (g * back, None, None))


def noised(x, size=NOISE):
    """x, in the float64 runs with noise of this relative size, and its gradient with other noise."""
    if noised.values is None:
        return x
    count = int(np.prod(x.shape))
    if noised.place + 2 * count > NOISES:
        noised.place = 0
    forth, back = noised.values[noised.place : noised.place + 2 * count].reshape((2, *x.shape))
    noised.place += 2 * count
    return scaled(x, 1 + size * forth, 1 + size * back)


def half(x, a):
    """Rounded to 16 bits, as its gradient is; with noise, to either neighbour, as where a rounding is dropped."""
    size = 2.0**-7 if a["type"] == "bfloat16" else 2.0**-10
    return noised(noised(x, size).astype(jnp.float32).astype(a["type"]).astype(x.dtype), size)


sigmoid = jax.nn.sigmoid


@jax.custom_vjp
def magnitude(x):
    return jnp.abs(x)


# 0 at 0, as in PyTorch; JAX has 1.
magnitude.defvjp(lambda x: (jnp.abs(x), x), lambda x, g: (g * jnp.sign(x),))


@jax.custom_vjp
def sign(x):
    return jnp.sign(x)


# Zeros, which times an infinity are NaN, as in PyTorch; in JAX nothing, which is multiplied by nothing.
sign.defvjp(lambda x: (jnp.sign(x), None), lambda _, g: (jnp.zeros_like(g),))


def gelu(x):
    return 0.5 * x * (1 + jnp.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


@jax.custom_vjp
def quotient(x, y):
    return x / y


# As PyTorch's: by the quotient, which may be infinite where its square's reciprocal would not be.
quotient.defvjp(lambda x, y: (x / y, (x, y)), lambda xy, g: (g / xy[1], -g / xy[1] * fits(xy[0] / xy[1])))


def divided(x, y):
    return quotient(*jnp.broadcast_arrays(x, y))


def softmax(x, d):
    # Noise in the sum is noise in what its gradient subtracts.
    e = jnp.exp(x - lax.stop_gradient(x.max(d, keepdims=True)))
    return e / noised(e.sum(d, keepdims=True))


def log_softmax(x, d):
    shifted = x - lax.stop_gradient(x.max(d, keepdims=True))
    return shifted - jnp.log(noised(jnp.exp(shifted).sum(d, keepdims=True)))


UNARY = {
    "exp": jnp.exp,
    "log": jnp.log,
    "log1p": jnp.log1p,
    "sqrt": jnp.sqrt,
    "rsqrt": lax.rsqrt,
    "reciprocal": lambda x: divided(jnp.ones_like(x), x),
    "abs": magnitude,
    "square": jnp.square,
    "sign": sign,
    "relu": jax.nn.relu,
    "silu": lambda x: x * sigmoid(x),
    "gelu": gelu,
    "tanh": jnp.tanh,
    "sigmoid": sigmoid,
    "neg": lambda x: -x,
}
COMPARE = {"eq": jnp.equal, "ne": jnp.not_equal, "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater, "ge": jnp.greater_equal}


@jax.custom_vjp
def larger(x, y):
    return jnp.maximum(x, y)


# Chosen, not multiplied: a NaN does not pass to the one that lost. None where one of them is NaN.
larger.defvjp(
    lambda x, y: (jnp.maximum(x, y), (x, y)),
    lambda xy, g: tuple(jnp.where(a == b, g / 2, jnp.where(a > b, g, 0)) for a, b in (xy, xy[::-1])),
)


def opaque(value, x):
    """A number of x's type that XLA does not know: it takes x + 0 for x, which is not so where x is -0."""
    return lax.optimization_barrier(jnp.asarray(value, x.dtype))


def power(x, exponent):
    # As PyTorch's: by roots, which are NaN of -inf, where C's pow is not.
    return {0.5: jnp.sqrt, -0.5: lax.rsqrt}.get(exponent, lambda x: x**exponent)(x)


def clamp(x, low, high):
    # The gradient passes at the limits, and not at a NaN, as in PyTorch.
    low, high = -jnp.inf if low is None else low, jnp.inf if high is None else high
    return jnp.where((x >= low) & (x <= high), x, lax.stop_gradient(jnp.clip(x, low, high)))


def extreme(best, a, x):
    """Equal elements share the gradient. Where the result is NaN, no element equals it, and the gradient is 0 / 0, as PyTorch's."""
    axis, keep = a["dim"], a.get("keep", False)

    @jax.custom_vjp
    def of(x):
        return best(x, axis=axis, keepdims=keep)

    def backward(x, g):
        same = x == best(x, axis=axis, keepdims=True)
        return (jnp.where(same, 1, 0) * (g if keep else jnp.expand_dims(g, axis)) / same.sum(axis, keepdims=True),)

    of.defvjp(lambda x: (of(x), x), backward)
    return of(x)


def scattered(x, a):
    """Where indices along a dimension point, as arrays that index x."""
    index = np.array(a["index"]).reshape(a["shape"])
    places = list(np.indices(index.shape))
    places[a["dim"]] = index
    return tuple(places)


def conv(x, w, a):
    return lax.conv_general_dilated(x, w, a["stride"], [(p, p) for p in a["padding"]], dimension_numbers=("NCHW", "OIHW", "NCHW"))


def windows(x, a):
    """[batch, channels, rows, columns, window]"""
    (h, w), (s, t) = a["window"], a["stride"]
    rows, columns = (x.shape[2] - h) // s + 1, (x.shape[3] - w) // t + 1
    parts = [x[:, :, i : i + (rows - 1) * s + 1 : s, j : j + (columns - 1) * t + 1 : t] for i in range(h) for j in range(w)]
    return jnp.stack(parts, 4)


@jax.custom_vjp
def safe_softmax(x):
    """Over the last dimension; 0 where all are -inf, as in PyTorch."""
    return jnp.where((x != -jnp.inf).any(-1, keepdims=True), softmax(x, -1), 0)


def softmax_backward(p, g):
    return (p * (g - noised((p * g).sum(-1, keepdims=True))),)


safe_softmax.defvjp(lambda x: (safe_softmax(x),) * 2, softmax_backward)


def attention(q, k, v, a, mask=None):
    scores = noised(jnp.einsum("...qd,...kd->...qk", q, k)) / q.shape[-1] ** 0.5
    queries, keys = scores.shape[-2:]
    seen = jnp.ones((queries, keys), bool)
    if a.get("causal"):
        seen = jnp.tril(seen, keys - queries)
    if mask is not None:
        seen = seen & (mask > 0)
    scores = jnp.where(seen, scores, -jnp.inf)
    chances = safe_softmax(scores)
    # The fused kernel keeps max + log(sum) of a row, rounded, for the gradient.
    lost = lax.stop_gradient(1 + jnp.abs(scores.max(-1, keepdims=True))) if "heads" in a else 1
    return noised(chances, NOISE * lost) @ v


def fused_attention(x, a):
    batch, tokens, width = x.shape
    q, k, v = jnp.split(x, 3, -1)
    heads = lambda y: y.reshape(batch, tokens, a["heads"], -1).transpose(0, 2, 1, 3)
    y = attention(heads(q), heads(k), heads(v), a)
    return y.transpose(0, 2, 1, 3).reshape(batch, tokens, width // 3)


def cross_entropy(x, a):
    targets = np.array(a["targets"])
    kept = targets != -100
    # No gradient of what is ignored, not even a NaN's.
    x = jnp.where(kept[:, None], x, 0)
    losses = jnp.where(kept, -jnp.take_along_axis(log_softmax(x, -1), np.where(kept, targets, 0)[:, None], 1)[:, 0], 0)
    return reduced(losses, a)


def reduced(losses, a):
    return {"none": lambda x: x, "mean": jnp.mean, "sum": jnp.sum}[a["reduction"]](losses)


def bce(x, y):
    return jnp.maximum(x, 0) - x * y + jnp.log1p(jnp.exp(-magnitude(x)))


def scale_of(x):
    return noised(1 / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5))


def layer_norm(x, w, b):
    centred = noised(x - noised(x.mean(-1, keepdims=True)))
    return centred * scale_of(centred) * w + b


def glu(x, a):
    gate, up = jnp.split(x, 2, -1)
    return UNARY[a["activation"]](gate) * up


def recurrent(x, w, u, bias, own, step):
    """The states of all steps [batch, steps, hidden], gates in PyTorch's order."""
    h = c = jnp.zeros((x.shape[0], u.shape[1]), x.dtype)
    out = []
    for t in range(x.shape[1]):
        h, c = (noised(y) for y in step(noised(x[:, t] @ w.T + bias), noised(h @ u.T + own), h, c))
        out.append(h)
    return jnp.stack(out, 1)


def lstm(inputs, hidden, h, c):
    i, f, g, o = jnp.split(inputs + hidden, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
    return sigmoid(o) * jnp.tanh(c), c


def gru(inputs, hidden, h, c):
    (r, z, n), (hr, hz, hn) = jnp.split(inputs, 3, -1), jnp.split(hidden, 3, -1)
    z = sigmoid(z + hz)
    return (1 - z) * jnp.tanh(n + sigmoid(r + hr) * hn) + z * h, c


def window_of(a, x):
    return tuple(slice(a["start"], a["end"], a["step"]) if d == a["dim"] else slice(None) for d in range(x.ndim))


# Each by its operands and attributes: those that round.
ROUNDS = {
    "unary": lambda a, x: UNARY[a["f"]](x),
    "pow": lambda a, x: power(x, a["exponent"]),
    "addNumber": lambda a, x: x + opaque(a["number"], x),
    "mulNumber": lambda a, x: x * a["number"],
    "rsubNumber": lambda a, x: opaque(a["number"], x) - x,
    "divNumber": lambda a, x: x / a["number"],
    "rdivNumber": lambda a, x: divided(jnp.asarray(a["number"], x.dtype), x),
    "add": lambda a, x, y: x + y,
    "sub": lambda a, x, y: x - y,
    "mul": lambda a, x, y: x * y,
    "div": lambda a, x, y: divided(x, y),
    "sum": lambda a, x: jnp.sum(x, axis=tuple(a["dims"]), keepdims=a["keep"]),
    "mean": lambda a, x: jnp.mean(x, axis=tuple(a["dims"]), keepdims=a["keep"]),
    "variance": lambda a, x: jnp.var(x, axis=tuple(a["dims"]), keepdims=a["keep"], ddof=a["correction"]),
    "softmax": lambda a, x: softmax(x, a["dim"]),
    "logSoftmax": lambda a, x: log_softmax(x, a["dim"]),
    "rmsNorm": lambda a, x, w: x * scale_of(x) * w,
    "layerNorm": lambda a, x, w, b: layer_norm(x, w, b),
    "glu": lambda a, x: glu(x, a),
    "matmul": lambda a, x, y: jnp.matmul(x, y, precision="highest"),
    "linear": lambda a, x, w, b=0: jnp.matmul(x, w.T, precision="highest") + b,
    "conv": lambda a, x, w, b=None: conv(x, w, a) + (0 if b is None else b[:, None, None]),
    "avgPool": lambda a, x: windows(x, a).mean(-1),
    "attention": lambda a, q, k, v, mask=None: attention(q, k, v, a, mask),
    "fusedAttention": lambda a, x: fused_attention(x, a),
    "crossEntropy": lambda a, x: cross_entropy(x, a),
    "mse": lambda a, x, y: reduced((x - y) ** 2, a),
    "l1": lambda a, x, y: reduced(magnitude(x - y), a),
    "bce": lambda a, x, y: reduced(bce(x, y), a),
    "scatterAdd": lambda a, x, s: x.at[scattered(x, a)].add(s),
    "lstm": lambda a, *xs: recurrent(*xs, lstm),
    "gru": lambda a, *xs: recurrent(*xs, gru),
}
# Those that do not: what they give is one of their operands' elements, or exact.
EXACT = {
    "half": lambda a, x: half(x, a),
    "maximum": lambda a, x, y: larger(*jnp.broadcast_arrays(x, y)),
    "minimum": lambda a, x, y: -larger(*jnp.broadcast_arrays(-x, -y)),
    "clamp": lambda a, x: clamp(x, a["min"], a["max"]),
    "compare": lambda a, x, y: COMPARE[a["f"]](x, y).astype(x.dtype),
    "compareNumber": lambda a, x: COMPARE[a["f"]](x, a["number"]).astype(x.dtype),
    "where": lambda a, c, x, y: jnp.where(c > 0, x, y),
    "maskedFill": lambda a, x, c: jnp.where(c > 0, a["number"], x),
    "reshape": lambda a, x: x.reshape(a["shape"]),
    "permute": lambda a, x: x.transpose(a["order"]),
    "slice": lambda a, x: x[window_of(a, x)],
    "expand": lambda a, x: jnp.broadcast_to(x, a["shape"]),
    "cat": lambda a, *xs: jnp.concatenate(xs, a["dim"]),
    "stack": lambda a, *xs: jnp.stack(xs, a["dim"]),
    "amax": lambda a, x: extreme(jnp.max, a, x),
    "amin": lambda a, x: extreme(jnp.min, a, x),
    "argmax": lambda a, x: jnp.argmax(x, axis=a["dim"], keepdims=a["keep"]).astype(x.dtype),
    "argmin": lambda a, x: jnp.argmin(x, axis=a["dim"], keepdims=a["keep"]).astype(x.dtype),
    "maxPool": lambda a, x: extreme(jnp.max, {"dim": -1}, windows(x, a)),
    "upsample": lambda a, x: x.repeat(a["scale"][0], 2).repeat(a["scale"][1], 3),
    "gather": lambda a, x: x[scattered(x, a)],
    "scatter": lambda a, x, s: x.at[scattered(x, a)].set(s, unique_indices=True),
    "indexSelect": lambda a, x: jnp.take(x, np.array(a["index"]), axis=a["dim"]),
    "embedding": lambda a, x: x[np.array(a["index"]).reshape(a["shape"])],
}


# The sign of a zero is the order of their additions, or which of two equal ones a driver takes.
UNSIGNED = set(ROUNDS) - {"unary", "pow", "addNumber", "mulNumber", "rsubNumber", "divNumber", "rdivNumber", "add", "sub", "mul", "div"}
UNSIGNED |= {"maximum", "minimum", "clamp", "amax", "amin", "maxPool"}


def number(value):
    return float(value) if isinstance(value, str) else value


def compiled(program, dtype):
    """results and gradients of (inputs, weights of results, noise)."""
    wide = dtype == np.float64
    lines = [(op, operands, {k: number(v) if k in ("number", "min", "max", "exponent") else v for k, v in a.items()})
             for op, operands, a in program["lines"]]

    def run(inputs, cotangents, noise):
        noised.values = noise if wide else None
        noised.place = 0

        def of(*chosen):
            pool = list(inputs)
            for i, x in zip(program["gradients"], chosen):
                pool[i] = x
            for op, operands, a in lines:
                xs = [pool[i] for i in operands]
                y = ROUNDS[op](a, *[noised(x) for x in xs]) if op in ROUNDS else EXACT[op](a, *xs)
                pool.append(fits(y) if wide else y)
            return [pool[i] for i in program["ends"]], [pool[i] for i in program["results"]]

        _, back, results = jax.vjp(of, *[inputs[i] for i in program["gradients"]], has_aux=True)
        return results + list(back(cotangents))

    return jax.jit(run)


def decode(x):
    return np.frombuffer(base64.b64decode(x["data"]), np.float32).reshape(x["shape"])


def difference(own, narrow, wides, pointwise, gradient):
    """Indices of elements that no run explains, and how many elements were held to RELATIVE."""
    with np.errstate(all="ignore"):
        stack = np.stack(wides + [narrow.astype(np.float64)])
        finite = np.isfinite(stack)
        wide = np.where(finite, stack, np.nan)[:-1]
        some = np.isfinite(wide).any(0)
        low = np.min(np.where(np.isfinite(wide), wide, np.inf), 0)
        high = np.max(np.where(np.isfinite(wide), wide, -np.inf), 0)
        spread = np.where(some, high - low, 0)
        size = np.where(some, np.maximum(np.abs(low), np.abs(high)), 0)
        own_error = np.nan_to_num(np.abs(stack[-1] - stack[0]), nan=0, posinf=0)
        slack = SPREADS * np.maximum(spread, own_error) + RELATIVE * size + ABSOLUTE
        if (gradient or not pointwise) and np.isfinite(stack).any():
            # Sums that cancel out keep the rounding of what was added.
            slack = slack + OF_LARGEST * np.max(np.abs(stack[np.isfinite(stack)]))
        mine = own.astype(np.float64)
        ok = some & np.isfinite(mine) & (mine >= low - slack) & (mine <= high + slack)
        # JAX's own float32 result, and the same kind of special one.
        near = np.abs(mine - stack[-1]) <= RELATIVE * np.abs(stack[-1]) + ABSOLUTE
        ok |= near
        for kind in (np.isnan, np.isposinf, np.isneginf):
            ok |= kind(mine) & kind(stack).any(0)
        if gradient:
            # By which formula: 0 times an infinity is in the one and not in the other.
            ok |= ~np.isfinite(mine) & ~np.isfinite(stack).all(0)
        # Where float32 ends.
        ok |= np.isinf(mine) & some & (np.sign(mine) * np.where(mine > 0, high, -low) * 1.0 > 0) & (size + slack >= F32_MAX)
        # Zeros of one sign everywhere are of that sign.
        zeros = (stack == 0).all(0)
        sign = np.signbit(stack)
        if pointwise and not gradient:
            ok &= ~(zeros & (mine == 0) & (sign == sign[0]).all(0) & (np.signbit(mine) != sign[0]))
        strict = (~np.isfinite(mine) | (slack <= 1e-3 * size + 2 * ABSOLUTE)).sum()
    return np.flatnonzero(~ok.ravel()), int(strict)


def main():
    generator = np.random.default_rng(1)
    noises = [np.zeros(NOISES)] + [generator.uniform(-1, 1, NOISES) for _ in range(NOISY_RUNS)]
    for line in sys.stdin:
        request = json.loads(line)
        if "version" in request:
            print(json.dumps({"jax": jax.__version__, "numpy": np.__version__}), flush=True)
            continue
        try:
            program = request["program"]
            answer = {"differences": [], "elements": 0, "strict": 0}
            runs = {dtype: compiled(program, dtype) for dtype in (np.float32, np.float64)}
            for turn, draw in enumerate(request["draws"]):
                inputs, cotangents = [[decode(x) for x in draw[key]] for key in ("inputs", "cotangents")]
                cast = lambda dtype: ([x.astype(dtype) for x in inputs], [x.astype(dtype) for x in cotangents])
                narrow = [np.asarray(y) for y in runs[np.float32](*cast(np.float32), noises[0])]
                wides = [[np.asarray(y) for y in runs[np.float64](*cast(np.float64), noise)] for noise in noises]
                pointwise = not any(op in UNSIGNED for op, _, _ in program["lines"])
                names = [f"result {i}" for i in program["results"]] + [f"gradient {i}" for i in program["gradients"]]
                for how, outcomes in draw["outcomes"].items():
                    for k, (name, outcome) in enumerate(zip(names, outcomes)):
                        own = decode(outcome)
                        if own.shape != narrow[k].shape:
                            answer["differences"].append(f"draw {turn}, {how}, {name}: shape {own.shape}, JAX {narrow[k].shape}")
                            continue
                        at, strict = difference(own, narrow[k], [w[k] for w in wides], pointwise, name.startswith("gradient"))
                        answer["elements"] += own.size
                        answer["strict"] += strict
                        if at.size:
                            i = at[0]
                            all_of = [float(w[k].ravel()[i]) for w in wides]
                            answer["differences"].append(
                                f"draw {turn}, {how}, {name} {list(own.shape)}: {at.size} elements, first {i}: "
                                f"{own.ravel()[i]!r}; JAX in float32 {narrow[k].ravel()[i]!r}, in float64 {all_of}")
            print(json.dumps(answer), flush=True)
        except Exception as error:  # noqa: BLE001 - the other side prints it beside the program
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


main()
