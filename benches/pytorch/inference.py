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

import os
import time

import torch

from lib import DEVICE, exact_f32, seconds_of, serve, synchronize, write_safetensors

# Ids of a text.
LENGTH = 128


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

    def run(self, request):
        def calls():
            for _ in range(request["calls"]):
                self.call(self.x)
                if request["wait"]:
                    synchronize()

        with torch.inference_mode():
            return {"milliseconds": seconds_of(calls)[0] * 1000}


if __name__ == "__main__":
    exact_f32()
    side = Side()
    serve({"make": side.make, "prepare": side.prepare, "run": side.run})
