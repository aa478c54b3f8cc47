/**
 * A device that runs nothing, and counts dispatches and the barriers that their lists need. It has the properties of an NVIDIA H200, so that the
 * kernels make the choices that they make there.
 */

import native from '../../index.js';

/** VkComponentTypeKHR. */
const [FLOAT16, FLOAT32, BFLOAT16] = [0, 1, 1000141000];
/** Bit of a record's number of bindings that says that ranges follow. */
const RANGED = 0x8000;

/** What `initDevice` would return. */
const INFO = {
  deviceName: 'NVIDIA H200 (stub)',
  vendorId: 0x10de,
  deviceType: 2,
  deviceTypeName: 'discrete',
  maxBufferBytes: 2 ** 32 - 1,
  maxStorageBufferRange: 2 ** 32 - 1,
  minStorageBufferOffsetAlignment: 16,
  maxPushConstantsSize: 256,
  maxBindings: 1048576,
  maxComputeSharedMemorySize: 49152,
  maxComputeWorkGroupInvocations: 1024,
  maxComputeWorkGroupSizeX: 1024,
  maxComputeWorkGroupSizeY: 1024,
  maxComputeWorkGroupSizeZ: 64,
  maxComputeWorkGroupCountX: 2 ** 31 - 1,
  maxComputeWorkGroupCountY: 65535,
  maxComputeWorkGroupCountZ: 65535,
  subgroupSize: 32,
  minSubgroupSize: 32,
  maxSubgroupSize: 32,
  subgroupSizeControlSupported: true,
  computeFullSubgroupsSupported: true,
  nanPreserveF32: true,
  denormPreserveF32: true,
  denormFlushF32: true,
  f16Supported: true,
  bf16Supported: true,
  coopMatSupported: true,
  coopMatBf16Supported: true,
  coopMat2Supported: false,
  cooperativeMatrixProperties: [FLOAT16, BFLOAT16].flatMap((type) =>
    [16, 8].map((n) => ({
      MSize: 16,
      NSize: n,
      KSize: 16,
      AType: type,
      BType: type,
      CType: FLOAT32,
      ResultType: FLOAT32,
      saturatingAccumulation: false,
      scope: 3,
    })),
  ),
  cooperativeMatrixFlexibleDimensions: [],
};

/**
 * The calls of the native module that trainers make.
 * @returns {any} with `counts`: dispatches, barriers and bytes of buffers, of which `peak` is the most at a time
 */
export function stubDevice() {
  let handle = 1;
  /** @type {Map<number, number>} */
  const buffers = new Map();
  /** Push-constant bytes and names of pipelines. @type {Map<number, { bytes: number, name: string }>} */
  const pipelines = new Map();
  /** @type {{ dispatches: number, barriers: number, bytes: number, peak: number, names: Record<string, number> }} */
  const counts = { dispatches: 0, barriers: 0, bytes: 0, peak: 0, names: {} };
  /** Buffers read and written since the last barrier. @type {Set<number>} */
  const reads = new Set();
  /** @type {Set<number>} */
  const writes = new Set();

  /** @param {number[]} read @param {number[]} written */
  const access = (read, written) => {
    if (read.some((b) => writes.has(b)) || written.some((b) => writes.has(b) || reads.has(b))) {
      counts.barriers++;
      reads.clear();
      writes.clear();
    }
    for (const b of read) reads.add(b);
    for (const b of written) writes.add(b);
  };
  /** @param {Uint8Array | ArrayBuffer} packed @param {number} count */
  const execute = (packed, count) => {
    const bytes = packed instanceof ArrayBuffer ? new Uint8Array(packed) : packed;
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let at = 0;
    for (let i = 0; i < count; i++) {
      const pipeline = view.getInt32(at, true);
      const n = view.getUint16(at + 4, true);
      at += 12 + (view.getUint16(at + 6, true) & 1 ? 4 : 0);
      const mask = view.getUint32(at, true);
      at += 4;
      const bound = n & ~RANGED;
      const handles = Array.from({ length: bound }, (_, b) => view.getInt32(at + 4 * b, true));
      for (const b of handles) if (!buffers.has(b)) throw new RangeError(`dispatch ${i}: no buffer ${b}`);
      access(
        handles.filter((_, b) => !((mask >>> b) & 1)),
        handles.filter((_, b) => (mask >>> b) & 1),
      );
      const known = pipelines.get(pipeline);
      if (!known) throw new RangeError(`dispatch ${i}: no pipeline ${pipeline}`);
      at += (n & RANGED ? 20 : 4) * bound + known.bytes;
      counts.names[known.name] = (counts.names[known.name] ?? 0) + 1;
    }
    counts.dispatches += count;
    return 0;
  };
  let recording = false;
  /** @type {{ packed: Uint8Array, count: number }[]} */
  let list = [];
  /** @type {Map<number, typeof list>} */
  const graphs = new Map();
  return {
    counts,
    reset: () => {
      Object.assign(counts, { dispatches: 0, barriers: 0, names: {} });
      reads.clear();
      writes.clear();
    },
    shaders: native.shaders,
    buildKernel: native.buildKernel,
    initDevice: () => INFO,
    createBuffer: (/** @type {number} */ bytes) => {
      buffers.set(++handle, bytes);
      counts.bytes += bytes;
      counts.peak = Math.max(counts.peak, counts.bytes);
      return handle;
    },
    destroyBuffer: (/** @type {number} */ buffer) => {
      counts.bytes -= buffers.get(buffer) ?? 0;
      buffers.delete(buffer);
    },
    createPipeline: (
      /** @type {any} */ first,
      /** @type {number} */ _,
      /** @type {number} */ bytes,
      /** @type {any} */ { name = '' } = {},
    ) => {
      pipelines.set(++handle, first.ptx === undefined ? { bytes, name } : { bytes: first.pushBytes, name: first.name });
      return handle;
    },
    destroyPipeline: (/** @type {number} */ pipeline) => pipelines.delete(pipeline),
    batchExecuteAll: (/** @type {Uint8Array} */ packed, /** @type {number} */ count) => {
      if (!recording) return execute(packed, count);
      list.push({ packed: new Uint8Array(packed).slice(), count });
      return 0;
    },
    graphBegin: () => {
      recording = true;
      list = [];
    },
    graphEnd: () => {
      recording = false;
      graphs.set(++handle, list);
      return handle;
    },
    graphLaunch: (/** @type {number} */ graph) => {
      for (const { packed, count } of graphs.get(graph) ?? []) execute(packed, count);
      return 0;
    },
    graphDestroy: (/** @type {number} */ graph) => graphs.delete(graph),
    uploadBuffer: () => {},
    uploadAsync: () => 0,
    fillBuffer: () => {},
    copyBuffer: () => 0,
    readBuffer: () => new Float32Array(1),
    readAsync: async (/** @type {number} */ _, /** @type {number} */ __, /** @type {number} */ bytes) => new Uint8Array(bytes),
    bufferBytes: (/** @type {number} */ buffer) => buffers.get(buffer) ?? 0,
    dispatch: () => 0,
    setName: () => {},
    waitTimeline: () => {},
    getCompleted: () => 0,
  };
}
