# Matrix products in bf16 by cuBLAS through PyTorch: TFLOP/s of each shape, for `kernels-matmul.mjs` to be held against.
import torch

PRODUCTS = [('NT', 8192, 2816, 1024), ('NT', 8192, 5632, 1024), ('NT', 8192, 1024, 2752), ('NT', 4096, 4096, 4096),
            ('NT', 8192, 1024, 1024), ('NT', 2048, 1024, 1024), ('NN', 8192, 1024, 2816), ('NN', 8192, 2816, 1024),
            ('TN', 1024, 1024, 8192), ('TN', 2816, 1024, 8192), ('TN', 1024, 2752, 8192)]
RUNS = 40


def random(*shape):
    return torch.rand(shape, device='cuda').mul_(2).sub_(1).bfloat16()


for form, m, n, k in PRODUCTS:
    a = random(k, m).t() if form[0] == 'T' else random(m, k)
    b = random(n, k).t() if form[1] == 'T' else random(k, n)
    c = a @ b
    for _ in range(10):
        torch.mm(a, b, out=c)
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(RUNS)]
    for start, end in events:
        start.record()
        torch.mm(a, b, out=c)
        end.record()
    torch.cuda.synchronize()
    us = sorted(start.elapsed_time(end) * 1e3 for start, end in events)
    flop = 2 * m * n * k
    print(f'{"cuBLAS":12} {form} {m:5}x{n:5}x{k:5}: median {us[RUNS // 2]:7.1f} us {flop / us[RUNS // 2] / 1e6:4.0f} TFLOP/s, '
          f'best {flop / us[0] / 1e6:4.0f}', flush=True)
