"""What the benches in PyTorch share: files of tensors, the clock, and answers to a bench that asks over pipes."""

import json
import struct
import sys
import time

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TYPES = {"F32": torch.float32, "I32": torch.int32, "U32": torch.int32}


def read_safetensors(path):
    """All tensors of a safetensors file, and its metadata."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__", {})
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            data = bytearray(file.read(end - begin))
            tensors[name] = torch.frombuffer(data, dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def write_safetensors(path, tensors):
    """Writes tensors of f32 and i32."""
    header, data, offset = {}, [], 0
    for name, value in tensors.items():
        raw = value.contiguous().numpy().tobytes()
        dtype = "F32" if value.dtype == torch.float32 else "I32"
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        data.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def exact_f32():
    """f32 without TF32, which cuDNN and cuBLAS would take; cuDNN chooses its algorithms by time."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def device_name(device=DEVICE):
    return torch.cuda.get_device_name() if device.type == "cuda" else "cpu"


def synchronize():
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def seconds_of(work):
    """Seconds until the device has ended what `work` gives it, and the result."""
    synchronize()
    start = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - start, result


def serve(handlers):
    """Answers each line of standard input, a JSON object whose "do" names a handler, with one line of JSON."""
    # What libraries print is not an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    handlers = {"info": lambda _: {"torch": torch.__version__, "device": device_name()}, **handlers}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request["do"]](request)
        except Exception as error:  # e.g. no Triton for compiled ones: the others still count
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
