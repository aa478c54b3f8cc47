#!/usr/bin/env python3
"""Models of ONNX files in PyTorch, for benches/onnx.mjs: it starts this and asks over pipes.

Each line of standard input is a JSON object, and each is answered by one line of JSON:

    {"do": "info"}
    {"do": "make", "model": "resnet50" | "bert-base", "small": bool, "precision": "f32" | "f16", "folder": PATH, "batches": [n, …]}
        -> {"file": PATH, "seconds": t}; it writes an .onnx file of random weights, and for each batch values-N.safetensors
           with "input" (f32, or i32 for ids) and "output" (f32)
    {"do": "prepare", "batch": n, "mode": "eager" | "compiled" | "graphs"}    -> {"apart": x, "seconds": t}
    {"do": "run", "calls": n, "wait": bool}                                   -> {"milliseconds": t}

`compiled` is torch.compile, `graphs` the same with CUDA graphs. With `wait` each call is waited for. `apart` is the largest difference to the
output of eager PyTorch, relative to its largest element. Needs PyTorch with torchvision, transformers, onnx and onnxscript.
"""

import json
import os
import struct
import sys
import time

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TYPES = {torch.float32: "F32", torch.int32: "I32"}
# Ids of a text.
LENGTH = 128


def write_safetensors(path, tensors):
    header, data = {}, []
    offset = 0
    for name, value in tensors.items():
        raw = value.contiguous().numpy().tobytes()
        header[name] = {"dtype": TYPES[value.dtype], "shape": list(value.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for raw in data:
            file.write(raw)


class Model(torch.nn.Module):
    """A model that computes in its own type, and takes and gives f32 or ids."""

    def __init__(self, name, small):
        super().__init__()
        self.name = name
        torch.manual_seed(4)
        if name == "resnet50":
            import torchvision

            self.model = torchvision.models.resnet50(weights=None, num_classes=1000)
            self.size = 64 if small else 224
        else:
            import transformers

            config = transformers.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
            if small:
                config.update(dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, vocab_size=500))
            self.model = transformers.BertModel(config, add_pooling_layer=False)
            self.vocabulary = config.vocab_size
        self.train(False)

    def input(self, batch):
        generator = torch.Generator().manual_seed(batch)
        if self.name == "resnet50":
            return torch.randn(batch, 3, self.size, self.size, generator=generator)
        return torch.randint(0, self.vocabulary, (batch, LENGTH), generator=generator)

    def forward(self, x):
        if self.name == "resnet50":
            return self.model(x.to(self.model.fc.weight.dtype)).float()
        return self.model(input_ids=x).last_hidden_state.float()


class Side:
    def make(self, request):
        start = time.perf_counter()
        self.model = Model(request["model"], request["small"])
        if request["precision"] == "f16":
            self.model.model.half()
        # A dimension of size 1 would be taken for a fixed one.
        example = self.model.input(2)
        path = os.path.join(request["folder"], "model.onnx")
        # Batch norms are folded into convolutions, as exports for inference are.
        torch.onnx.export(
            self.model, (example,), path, input_names=["input"], output_names=["output"], dynamo=True, verbose=False, external_data=False,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
        )
        seconds = time.perf_counter() - start
        self.model.to(DEVICE)
        self.inputs, self.expected = {}, {}
        with torch.inference_mode():
            for batch in request["batches"]:
                x = self.model.input(batch)
                self.inputs[batch] = x.to(DEVICE)
                self.expected[batch] = self.model(self.inputs[batch]).cpu()
                own = x.int() if x.dtype == torch.long else x
                write_safetensors(os.path.join(request["folder"], f"values-{batch}.safetensors"), dict(input=own, output=self.expected[batch]))
        return {"file": path, "seconds": seconds, "parameters": sum(p.numel() for p in self.model.parameters())}

    def prepare(self, request):
        start = time.perf_counter()
        batch, mode = request["batch"], request["mode"]
        torch.compiler.reset()
        model = self.model
        self.x = self.inputs[batch]
        if self.model.name == "resnet50" and DEVICE.type == "cuda":
            model = model.to(memory_format=torch.channels_last)
            self.x = self.x.to(memory_format=torch.channels_last)
        if mode != "eager":
            model = torch.compile(model, mode="reduce-overhead" if mode == "graphs" else None, dynamic=False)
        self.call = model
        with torch.inference_mode():
            for _ in range(3):
                result = self.call(self.x).cpu()
        expected = self.expected[batch]
        return {"apart": ((result - expected).abs().max() / expected.abs().max()).item(), "seconds": time.perf_counter() - start}

    def run(self, calls, wait):
        synchronize()
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(calls):
                self.call(self.x)
                if wait:
                    synchronize()
        synchronize()
        return {"milliseconds": (time.perf_counter() - start) * 1000}


def synchronize():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def main():
    # What libraries print is not an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    torch.backends.cudnn.benchmark = True
    # f32 is f32 here.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    side = Side()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "info":
                name = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu"
                answer = {"torch": torch.__version__, "device": name}
            elif request["do"] == "make":
                answer = side.make(request)
            elif request["do"] == "prepare":
                answer = side.prepare(request)
            else:
                answer = side.run(request["calls"], request["wait"])
        except Exception as error:  # e.g. no Triton for compiled ones: the others still count
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
