# Matrix products by cuBLAS through PyTorch: TFLOP/s of each shape in bf16, for `kernels-matmul.mjs` to be held against. With `--stdin` the products
# are read from there, one a line as `bf16 NT 512 1024 1024`, and microseconds are written as JSON, one object a line.
import json
import sys

import torch

PRODUCTS = [('NT', 8192, 2816, 1024), ('NT', 8192, 5632, 1024), ('NT', 8192, 1024, 2752), ('NT', 4096, 4096, 4096),
            ('NT', 8192, 1024, 1024), ('NT', 2048, 1024, 1024), ('NN', 8192, 1024, 2816), ('NN', 8192, 2816, 1024),
            ('TN', 1024, 1024, 8192), ('TN', 2816, 1024, 8192), ('TN', 1024, 2752, 8192)]
RUNS = 40


# Bytes of operands, in sets that are used in turn, so that they come from memory as in a training step.
CACHE_BYTES = 64e6
TYPES = {'bf16': torch.bfloat16, 'f16': torch.float16, 'f32': torch.float32}


def random(dtype, *shape):
    return torch.rand(shape, device='cuda').mul_(2).sub_(1).to(dtype)


def timed(work, count):
    """Microseconds of each of so many calls, sorted."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, end in events:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) * 1e3 for start, end in events)


def operands_of(form, m, n, k, dtype=torch.bfloat16, sets=1):
    """Operands of some products, and their result, after a few of them."""
    operands = [(random(dtype, k, m).t() if form[0] == 'T' else random(dtype, m, k),
                 random(dtype, n, k).t() if form[1] == 'T' else random(dtype, k, n)) for _ in range(sets)]
    c = operands[0][0] @ operands[0][1]
    for _ in range(10):
        torch.mm(*operands[0], out=c)
    return operands, c


def replayed(operands, c, runs):
    """Microseconds of a product, of several in a graph: launched one by one small ones would take as long as PyTorch takes to launch them."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(runs):
            torch.mm(*operands[i % len(operands)], out=c)
    return timed(graph.replay, 7)[3] / runs


if '--stdin' in sys.argv[1:]:
    for line in filter(None, map(str.strip, sys.stdin)):
        name, form, *sizes = line.split()
        m, n, k = map(int, sizes)
        dtype = TYPES[name]
        sets = max(1, min(32, int(CACHE_BYTES / ((m + n) * k * dtype.itemsize)) + 1))
        us = replayed(*operands_of(form, m, n, k, dtype, sets), max(sets, 20))
        print(json.dumps({'product': line, 'us': us}), flush=True)
    sys.exit()

for form, m, n, k in PRODUCTS:
    [a_and_b], result = operands_of(form, m, n, k)
    us = timed(lambda: torch.mm(*a_and_b, out=result), RUNS)
    flop = 2 * m * n * k
    print(f'{"cuBLAS":12} {form} {m:5}x{n:5}x{k:5}: median {us[RUNS // 2]:7.1f} us {flop / us[RUNS // 2] / 1e6:4.0f} TFLOP/s, '
          f'best {flop / us[0] / 1e6:4.0f}', flush=True)
