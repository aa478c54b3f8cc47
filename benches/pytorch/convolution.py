# The layers and the training step of `convolution.mjs` in PyTorch, by cuDNN, channels last: milliseconds of a call by sample, as JSON.
import argparse
import json

import torch
import torch.nn.functional as F
from torch import nn

from lib import DEVICE, device_name, exact_f32, seconds_of
from networks import Unit

parser = argparse.ArgumentParser()
parser.add_argument('--precision', default='bf16', choices=['f32', 'f16', 'bf16'])
parser.add_argument('--batch', type=int, default=128)
parser.add_argument('--samples', type=int, default=7)
parser.add_argument('--repeats', type=int, default=10)
parser.add_argument('--layers', help='names, with commas; all when left out')
parser.add_argument('--step', action='store_true')
options = parser.parse_args()
device = DEVICE.type
dtype = {'f32': torch.float32, 'f16': torch.float16, 'bf16': torch.bfloat16}[options.precision]
exact_f32()

LAYERS = [('stem', 3, 64, 32, 3, 1), ('64', 64, 64, 32, 3, 1), ('64-128', 64, 128, 32, 3, 2), ('64-128-1x1', 64, 128, 32, 1, 2),
          ('128', 128, 128, 16, 3, 1), ('128-256', 128, 256, 16, 3, 2), ('256', 256, 256, 8, 3, 1), ('256-512', 256, 512, 8, 3, 2),
          ('512', 512, 512, 4, 3, 1)]


def timed(call):
    """Milliseconds of a call, by sample."""

    def calls():
        for _ in range(options.repeats):
            call()

    for _ in range(5):
        call()
    return [seconds_of(calls)[0] * 1e3 / options.repeats for _ in range(options.samples)]


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = Unit(inputs, outputs, 3, stride)
        self.second = Unit(outputs, outputs, 3, 1)
        self.short = Unit(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


def resnet():
    widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
    blocks = [Block(a, b, 1 if a == b else 2) for a, b in zip(widths, widths[1:])]
    stem = [Unit(3, 64, 3, 1), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


result = {'torch': torch.__version__, 'device': device_name()}
if options.step:
    images = torch.randn(options.batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    labels = torch.arange(options.batch, device=device) % 10
    # The most memory of each mode's tensors.
    result['gigabytes'] = {}
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

        if device == 'cuda':
            torch.cuda.reset_peak_memory_stats()
        try:
            result[name] = timed(step)
            if device == 'cuda':
                result['gigabytes'][name] = torch.cuda.max_memory_allocated() / 1e9
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
