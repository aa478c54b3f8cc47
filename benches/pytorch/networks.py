"""The networks of benches/lib/networks.mjs in PyTorch, with the same names of parameters."""

import torch
import torch.nn.functional as F
from torch import nn


class Unit(nn.Module):
    def __init__(self, inputs, outputs, window, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, window, stride, (window - 1) // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first = Unit(inputs, width, 1, 1)
        self.second = Unit(width, width, 3, stride)
        self.third = Unit(width, 4 * width, 1, 1)
        self.short = Unit(inputs, 4 * width, 1, stride) if inputs != 4 * width else None

    def forward(self, x):
        y = self.third(F.relu(self.second(F.relu(self.first(x)))))
        return F.relu(y + (self.short(x) if self.short else x))


class ResNet(nn.Module):
    def __init__(self, layers, width, classes, **_):
        super().__init__()
        self.stem = Unit(3, width, 7, 2)
        inputs, blocks = width, []
        for stage, count in enumerate(layers):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width << stage, 2 if stage > 0 and i == 0 else 1))
                inputs = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x, t):
        h = F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1)
        return F.cross_entropy(self.head(self.blocks(h).mean((2, 3))).float(), t)


class Residual(nn.Module):
    def __init__(self, inputs, outputs, steps):
        super().__init__()
        self.norm1 = nn.GroupNorm(32, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.step = nn.Linear(steps, outputs)
        self.norm2 = nn.GroupNorm(32, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x, step):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h + self.step(step)[:, :, None, None])))
        return h + (self.short(x) if self.short else x)


class Places(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x, _):
        batch, channels, height, width = x.shape
        rows = self.norm(x).reshape(batch, channels, height * width).transpose(1, 2)
        parts = self.qkv(rows).reshape(batch, height * width, 3, channels // 64, 64)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, height * width, channels)
        return x + self.out(mixed).transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    def __init__(self, width, levels, attention, steps, **_):
        super().__init__()
        inner = 4 * width
        self.embedding = nn.Embedding(steps, width)
        self.hidden = nn.Linear(width, inner)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        skips, down, channels = [width], [], width

        def block(inputs, outputs, level):
            own = [Residual(inputs, outputs, inner)] + ([Places(outputs)] if level in attention else [])
            return nn.ModuleList(own)

        for level, factor in enumerate(levels):
            for _i in range(2):
                down.append(block(channels, factor * width, level))
                channels = factor * width
                skips.append(channels)
            if level + 1 < len(levels):
                down.append(nn.Conv2d(channels, channels, 3, 2, 1))
                skips.append(channels)
        self.down = nn.ModuleList(down)
        self.middle = nn.ModuleList([Residual(channels, channels, inner), Places(channels), Residual(channels, channels, inner)])
        up = []
        for level, factor in reversed(list(enumerate(levels))):
            for _i in range(3):
                up.append(block(channels + skips.pop(), factor * width, level))
                channels = factor * width
            if level > 0:
                up.append(nn.Conv2d(channels, channels, 3, padding=1))
        self.up = nn.ModuleList(up)
        self.norm = nn.GroupNorm(32, channels)
        self.head = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x, t):
        def run(parts, h):
            for part in parts:
                h = part(h, step)
            return h

        step = F.silu(self.hidden(self.embedding(t)))
        h = self.stem(x)
        skips = [h]
        for part in self.down:
            h = run(part, h) if isinstance(part, nn.ModuleList) else part(h)
            skips.append(h)
        h = run(self.middle, h)
        for part in self.up:
            if isinstance(part, nn.ModuleList):
                h = run(part, torch.cat([h, skips.pop()], 1))
            else:
                h = part(F.interpolate(h, scale_factor=2, mode="nearest"))
        return F.mse_loss(self.head(F.silu(self.norm(h))).float(), x)


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        rows = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return x + (self.down(F.gelu(self.up(rows))) * self.scale).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, layers, widths, classes, **_):
        super().__init__()
        parts, before = [], 3
        for stage, (count, width) in enumerate(zip(layers, widths)):
            patch = 4 if stage == 0 else 2
            conv = nn.Conv2d(before, width, patch, patch)
            parts += [conv, ChannelNorm(width, eps=1e-6)] if stage == 0 else [ChannelNorm(before, eps=1e-6), conv]
            parts += [ConvNeXtBlock(width) for _i in range(count)]
            before = width
        self.parts = nn.Sequential(*parts)
        self.norm = nn.LayerNorm(before, eps=1e-6)
        self.head = nn.Linear(before, classes)

    def forward(self, x, t):
        return F.cross_entropy(self.head(self.norm(self.parts(x).mean((2, 3)))).float(), t)


class LstmModel(nn.Module):
    def __init__(self, words, width, **_):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, x, t):
        logits = self.head(self.lstm(self.embedding(x))[0]).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), t.reshape(-1))


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _i in range(4))
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        h = self.norm1(x + self.out(mixed))
        return self.norm2(h + self.down(F.gelu(self.up(h))))


class Bert(nn.Module):
    def __init__(self, length, words, width, heads, layers, **_):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _i in range(layers))
        self.transform = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, x, t):
        h = self.norm(self.words(x) + self.positions.weight)
        for layer in self.layers:
            h = layer(h)
        h = self.norm2(F.gelu(self.transform(h)))
        logits = F.linear(h, self.words.weight, self.bias).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), t.reshape(-1), ignore_index=-100)


NETWORKS = {"resnet50": ResNet, "unet": UNet, "convnext": ConvNeXt, "lstm": LstmModel, "bert": Bert}
