// The same memory in Vulkan and CUDA, without a copy: Vulkan writes, CUDA adds what it finds and fills, Vulkan reads.
//
//   node examples/cuda.mjs              needs Linux, an NVIDIA GPU and python3; PYTHON names another one
//
// Prints the device, then on such a machine:
//   CUDA found 499999500000, the sum of what Vulkan wrote
//   Vulkan found 77 everywhere, which CUDA wrote
// and on any other why it ends, such as: no CUDA here: llvmpipe is not an NVIDIA GPU

import { spawnSync } from 'node:child_process';
import { closeSync } from 'node:fs';
import vk from 'helios-vk';

const python = process.env.PYTHON ?? 'python3';

/** CUDA's side, with only the driver API. Its arguments: the device's UUID, bytes, whether dedicated, words. */
const CUDA = `
import ctypes, sys, uuid, array
cuda = ctypes.CDLL("libcuda.so.1")
def check(name, *args):
    status = getattr(cuda, name)(*args)
    if status != 0:
        raise SystemExit(f"{name} ended with CUDA's error {status}")

class Place(ctypes.Union):
    _fields_ = [("fd", ctypes.c_int), ("win32", ctypes.c_void_p * 2)]
class Handle(ctypes.Structure):  # CUDA_EXTERNAL_MEMORY_HANDLE_DESC
    _fields_ = [("type", ctypes.c_int), ("place", Place), ("size", ctypes.c_ulonglong), ("flags", ctypes.c_uint),
                ("reserved", ctypes.c_uint * 16)]
class Buffer(ctypes.Structure):  # CUDA_EXTERNAL_MEMORY_BUFFER_DESC
    _fields_ = [("offset", ctypes.c_ulonglong), ("size", ctypes.c_ulonglong), ("flags", ctypes.c_uint), ("reserved", ctypes.c_uint * 16)]

wanted, size, dedicated, words = uuid.UUID(sys.argv[1]).bytes, int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
check("cuInit", 0)
count, device, context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
check("cuDeviceGetCount", ctypes.byref(count))
for ordinal in range(count.value):
    check("cuDeviceGet", ctypes.byref(device), ordinal)
    found = (ctypes.c_ubyte * 16)()
    check("cuDeviceGetUuid", found, device)
    if bytes(found) == wanted: break
else:
    raise SystemExit(f"CUDA has no device with the UUID {sys.argv[1]}")
check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
check("cuCtxSetCurrent", context)

memory, pointer = ctypes.c_void_p(), ctypes.c_ulonglong()
handle = Handle(type=1, size=size, flags=dedicated)  # an opaque file descriptor, which is CUDA's from here on
handle.place.fd = 3
check("cuImportExternalMemory", ctypes.byref(memory), ctypes.byref(handle))
check("cuExternalMemoryGetMappedBuffer", ctypes.byref(pointer), memory, ctypes.byref(Buffer(size=size)))
data = array.array("I", bytes(4 * words))
check("cuMemcpyDtoH_v2", ctypes.c_void_p(data.buffer_info()[0]), pointer, ctypes.c_size_t(4 * words))
check("cuMemsetD32_v2", pointer, ctypes.c_uint(77), ctypes.c_size_t(words))
check("cuCtxSynchronize")
print(sum(data))
`;

const { deviceName, deviceUuid, driverName, bufferExportSupported } = vk.initDevice();
console.log(deviceName);

/** Why this machine cannot share with CUDA, or undefined. */
function obstacle() {
  if (!driverName.startsWith('NVIDIA')) return `${deviceName} is not an NVIDIA GPU`;
  if (!bufferExportSupported) return 'this driver cannot export buffers (VK_KHR_external_memory_fd)';
  if (spawnSync(python, ['-c', 'pass']).status !== 0) return `${python} does not run; PYTHON names another one`;
  if (spawnSync(python, ['-c', 'import ctypes; ctypes.CDLL("libcuda.so.1")']).status !== 0) return 'there is no libcuda.so.1';
  return undefined;
}

const why = obstacle();
if (why !== undefined) {
  console.log(`no CUDA here: ${why}`);
  process.exit();
}

const count = 1_000_000;
const buffer = vk.createBuffer(4 * count, 0, { exportable: true });
vk.uploadBuffer(
  buffer,
  Uint32Array.from({ length: count }, (_, i) => i),
);
// CUDA does not see Vulkan's timeline: wait for the writes before it reads them, and the other way round.
vk.waitIdle();

// The memory as a file descriptor, which the child process gets as its descriptor 3.
const { fd, size, dedicated } = vk.exportBuffer(buffer);
const child = spawnSync(python, ['-c', CUDA, deviceUuid, String(size), dedicated ? '1' : '0', String(count)], {
  stdio: ['ignore', 'pipe', 'inherit', fd],
  encoding: 'utf8',
});
closeSync(fd);
if (child.status !== 0) throw new Error(`the CUDA process ended with ${child.status ?? child.signal}`);
const sum = Number(child.stdout);
if (sum !== (count * (count - 1)) / 2) throw new Error(`CUDA found another sum: ${sum}`);
console.log(`CUDA found ${sum}, the sum of what Vulkan wrote`);

const words = new Uint32Array(vk.readBuffer(buffer).buffer);
if (!words.every((word) => word === 77)) throw new Error('Vulkan does not find what CUDA wrote');
console.log('Vulkan found 77 everywhere, which CUDA wrote');
vk.destroy();
