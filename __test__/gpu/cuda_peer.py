#!/usr/bin/env python3
"""The CUDA side of share-cuda.test.mjs: does what each line of standard input says (JSON, `op` and its
arguments) and answers with a line of JSON. Nothing but the CUDA driver is needed; the `torch` op also
needs PyTorch.

Words are unsigned 32-bit. A ramp is word[i] = first + step * i modulo 2^32.
"""

import array
import ctypes
import json
import subprocess
import sys
import uuid

cuda = ctypes.CDLL("libcuda.so.1")
OPAQUE_FD = 1
POSIX_FILE_DESCRIPTOR = 1
DEDICATED = 1


def check(name, *args):
    """Calls a function of the driver API and raises what it reports."""
    status = getattr(cuda, name)(*args)
    if status != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(text))
        raise RuntimeError(f"{name}: {(text.value or b'').decode()} ({status})")


class HandleUnion(ctypes.Union):
    _fields_ = [("fd", ctypes.c_int), ("win32", ctypes.c_void_p * 2)]


class ExternalMemoryHandle(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_HANDLE_DESC"""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle", HandleUnion),
        ("size", ctypes.c_ulonglong),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    ]


class ExternalMemoryBuffer(ctypes.Structure):
    """CUDA_EXTERNAL_MEMORY_BUFFER_DESC"""

    _fields_ = [
        ("offset", ctypes.c_ulonglong),
        ("size", ctypes.c_ulonglong),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 16),
    ]


class Location(ctypes.Structure):
    """CUmemLocation"""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc"""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Peer:
    def __init__(self):
        self.device = ctypes.c_int()
        self.pointer = ctypes.c_ulonglong()
        self.size = 0
        self.tensor = None

    def open(self, uuid_text):
        """Takes the device with this UUID, in the context that PyTorch uses too."""
        check("cuInit", 0)
        count = ctypes.c_int()
        check("cuDeviceGetCount", ctypes.byref(count))
        wanted = uuid.UUID(uuid_text).bytes
        found = []
        for ordinal in range(count.value):
            check("cuDeviceGet", ctypes.byref(self.device), ordinal)
            raw = (ctypes.c_ubyte * 16)()
            check("cuDeviceGetUuid", raw, self.device)
            found.append(str(uuid.UUID(bytes=bytes(raw))))
            if bytes(raw) == wanted:
                context = ctypes.c_void_p()
                check("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
                check("cuCtxSetCurrent", context)
                version = ctypes.c_int()
                check("cuDriverGetVersion", ctypes.byref(version))
                return {"cuda": version.value}
        raise RuntimeError(f"no CUDA device has the UUID {uuid_text}, there are {found}")

    def import_(self, fd, size, dedicated):
        """Maps the memory that Vulkan exported. CUDA owns the descriptor from then on."""
        handle = ExternalMemoryHandle(type=OPAQUE_FD, size=size, flags=DEDICATED if dedicated else 0)
        handle.handle.fd = fd
        memory = ctypes.c_void_p()
        check("cuImportExternalMemory", ctypes.byref(memory), ctypes.byref(handle))
        self.memory = memory
        buffer = ExternalMemoryBuffer(offset=0, size=size)
        check("cuExternalMemoryGetMappedBuffer", ctypes.byref(self.pointer), memory, ctypes.byref(buffer))
        self.size = size

    def release(self):
        check("cuCtxSynchronize")
        self.tensor = None
        check("cuMemFree_v2", self.pointer)
        check("cuDestroyExternalMemory", self.memory)

    def allocate(self, size):
        """Memory of CUDA's own that can be handed out; its file descriptor and its size."""
        properties = AllocationProperties(type=1, handle_types=POSIX_FILE_DESCRIPTOR, location=Location(1, self.device.value))
        grain = ctypes.c_size_t()
        check("cuMemGetAllocationGranularity", ctypes.byref(grain), ctypes.byref(properties), 0)
        self.size = -(-size // grain.value) * grain.value
        whole = ctypes.c_size_t(self.size)
        handle = ctypes.c_ulonglong()
        check("cuMemCreate", ctypes.byref(handle), whole, ctypes.byref(properties), ctypes.c_ulonglong(0))
        fd = ctypes.c_int()
        check("cuMemExportToShareableHandle", ctypes.byref(fd), handle, POSIX_FILE_DESCRIPTOR, ctypes.c_ulonglong(0))
        check("cuMemAddressReserve", ctypes.byref(self.pointer), whole, ctypes.c_size_t(0), ctypes.c_ulonglong(0), ctypes.c_ulonglong(0))
        check("cuMemMap", self.pointer, whole, ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
        access = Access(Location(1, self.device.value), 3)
        check("cuMemSetAccess", self.pointer, whole, ctypes.byref(access), ctypes.c_size_t(1))
        return {"fd": fd.value, "size": self.size}

    def read(self, words):
        data = array.array("I", bytes(4 * words))
        check("cuMemcpyDtoH_v2", ctypes.c_void_p(data.buffer_info()[0]), self.pointer, ctypes.c_size_t(4 * words))
        return data

    def compare(self, words, first, step):
        """The first word that is not the ramp's, or nothing."""
        data = self.read(words)
        expected = array.array("I", ((first + step * i) & 0xFFFFFFFF for i in range(words)))
        if data == expected:
            return {"wrong": None}
        at = next(i for i in range(words) if data[i] != expected[i])
        return {"wrong": at, "found": data[at], "expected": expected[at]}

    def fill(self, words, pattern):
        check("cuMemsetD32_v2", self.pointer, ctypes.c_uint(pattern), ctypes.c_size_t(words))
        check("cuCtxSynchronize")

    def view(self):
        import torch

        if self.tensor is None:
            shape = (self.size // 4,)
            interface = {"shape": shape, "typestr": "<i4", "data": (self.pointer.value, False), "version": 3}
            holder = type("Shared", (), {"__cuda_array_interface__": interface})()
            self.tensor = torch.as_tensor(holder, device=f"cuda:{self.device.value}")
            assert self.tensor.data_ptr() == self.pointer.value, "PyTorch made a copy"
        return torch, self.tensor

    def torch(self, words, factor, addend):
        """word = word * factor + addend, by PyTorch, in place."""
        torch, tensor = self.view()
        tensor[:words].mul_(factor).add_(addend)
        torch.cuda.synchronize()
        return {"torch": torch.__version__}

    def bandwidth(self):
        """GB/s of PyTorch's copies out of the shared memory, read and written bytes; and between tensors of its own."""
        torch, tensor = self.view()
        own, target = torch.zeros_like(tensor), torch.zeros_like(tensor)
        # Equal words would be compressed in memory that allows it.
        tensor.random_()
        own.random_()
        result = {}
        for name, source in (("own", own), ("shared", tensor), ("own again", own), ("shared again", tensor)):
            times = []
            for _ in range(8):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                target.copy_(source)
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
            result[name] = round(2 * self.size / (sorted(times)[len(times) // 2] * 1e6), 1)
        return result

    def lend(self, command, fd):
        """Runs a command that gets the descriptor."""
        done = subprocess.run(command, pass_fds=[fd], capture_output=True, text=True, timeout=120, check=False)
        return {"status": done.returncode, "output": done.stdout + done.stderr}


def main():
    peer = Peer()
    for line in sys.stdin:
        request = json.loads(line)
        op = request.pop("op")
        try:
            answer = getattr(peer, "import_" if op == "import" else op)(**request) or {}
        except Exception as error:  # told to the other side, which decides
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
