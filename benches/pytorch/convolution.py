# The layers and the training step of `convolution.mjs` in PyTorch, by cuDNN, channels last: milliseconds of a call by sample, as JSON.
import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument('--precision', default='bf16', choices=['f32', 'f16', 'bf16'])
parser.add_argument('--batch', type=int, default=128)
parser.add_argument('--samples', type=int, default=7)
parser.add_argument('--repeats', type=int, default=10)
parser.add_argument('--layers', help='names, with commas; all when left out')
parser.add_argument('--step', action='store_true')
options = parser.parse_args()
device = 'cuda' if torch.cuda.is_available() else 'cpu'
dtype = {'f32': torch.float32, 'f16': torch.float16, 'bf16': torch.bfloat16}[options.precision]
torch.backends.cudnn.benchmark = True
# f32 is f32 here: cuDNN would take TF32.
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False

LAYERS = [('stem', 3, 64, 32, 3, 1), ('64', 64, 64, 32, 3, 1), ('64-128', 64, 128, 32, 3, 2), ('64-128-1x1', 64, 128, 32, 1, 2),
          ('128', 128, 128, 16, 3, 1), ('128-256', 128, 256, 16, 3, 2), ('256', 256, 256, 8, 3, 1), ('256-512', 256, 512, 8, 3, 2),
          ('512', 512, 512, 4, 3, 1)]


def wait():
    if device == 'cuda':
        torch.cuda.synchronize()


def timed(call):
    for _ in range(5):
        call()
    samples = []
    for _ in range(options.samples):
        wait()
        start = time.perf_counter()
        for _ in range(options.repeats):
            call()
        wait()
        samples.append((time.perf_counter() - start) * 1e3 / options.repeats)
    return samples


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


def resnet():
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])]
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


result = {'torch': torch.__version__, 'device': torch.cuda.get_device_name() if device == 'cuda' else 'cpu'}
if options.step:
    images = torch.randn(options.batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(options.batch, device=device) % 10
    for name, mode in (('eager', None), ('compiled', 'default'), ('graphs', 'reduce-overhead')):
        model = resnet().to(device).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def loss_of(x, y):
            with torch.autocast(device, dtype, enabled=options.precision != 'f32'):
                return F.cross_entropy(model(x), y)

        forward = loss_of if mode is None else torch.compile(loss_of, mode=mode)

        def step():
            optimizer.zero_grad(set_to_none=True)
            forward(images, labels).backward()
            optimizer.step()

        try:
            result[name] = timed(step)
        except Exception as error:  # a PyTorch without a compiler
            result[name] = str(error).splitlines()[0]
else:
    result['layers'] = []
    for name, inputs, outputs, size, window, stride in LAYERS:
        if options.layers and name not in options.layers.split(','):
            continue
        x = torch.randn(options.batch, inputs, size, size, device=device).to(dtype, memory_format=torch.channels_last).requires_grad_()
        w = torch.randn(outputs, inputs, window, window, device=device).to(dtype, memory_format=torch.channels_last).requires_grad_()

        def forward():
            return F.conv2d(x, w, stride=stride, padding=window // 2)

        def both():
            return torch.autograd.grad(forward(), [x, w], dy)

        with torch.no_grad():
            dy = torch.randn_like(forward())
            own = timed(forward)
        result['layers'].append({'name': name, 'forward': own, 'both': timed(both)})
print(json.dumps(result))
