/**
 * The trainer's view of the native addon, restated from the contract. `tsc --noEmit` over this file
 * proves that the package's types satisfy it, and that typical misuse does not compile.
 */
import type * as helios from '../../index.js';

/** One product of matrices in the numbers of Vulkan's structure of that name; the trainer refuses anything else. */
interface CooperativeMatrixProperty {
  MSize: number;
  NSize: number;
  KSize: number;
  AType: number;
  BType: number;
  CType: number;
  ResultType: number;
  saturatingAccumulation: boolean;
  scope: number;
}

interface DeviceInfo {
  deviceName: string;
  vendorId: number;
  deviceId: number;
  deviceType: number;
  apiVersion: number;
  driverVersion: number;
  deviceLocalMemoryBytes: number;
  maxComputeSharedMemorySize: number;
  maxComputeWorkGroupInvocations: number;
  maxComputeWorkGroupSizeX: number;
  maxComputeWorkGroupSizeY: number;
  maxComputeWorkGroupSizeZ: number;
  subgroupSize: number;
  subgroupSupportedStages: number;
  subgroupSupportedOperations: number;
  subgroupQuadOperationsInAllStages: boolean;
  subgroupSizeControlSupported: boolean;
  computeFullSubgroupsSupported: boolean;
  minSubgroupSize: number;
  maxSubgroupSize: number;
  maxComputeWorkgroupSubgroups: number;
  requiredSubgroupSizeStages: number;
  timestampValidBits: number;
  timestampPeriodNs: number;
  f16Supported: boolean;
  hasAsyncTransfer: boolean;
  coopMatSupported: boolean;
  coopMat2Supported: boolean;
  coopMatM: number;
  coopMatN: number;
  coopMatK: number;
  cooperativeMatrixProperties: CooperativeMatrixProperty[];
  hasPushDescriptors: boolean;
  hasBDA: boolean;
  hasDGC: boolean;
}

interface AllocatorStats {
  activeBuffers: number;
  activeBufferBytes: number;
  slabBuffers: number;
  slabBufferBytes: number;
  individualBuffers: number;
  individualBufferBytes: number;
  tempSlabCount: number;
  tempSlabCapacityBytes: number;
  tempSlabUsedBytes: number;
  tempSlabLiveBytes: number;
  tempSlabLiveRefs: number;
  tempSlabResets: number;
  tempSlabsDisabled: number;
  hostSlabCount: number;
  hostSlabCapacityBytes: number;
  trackedVkMemoryAllocations: number;
  temporaryBufferRequests: number;
  slabFallbacks: number;
  slabFreeRangeReuses: number;
  slabFreeRangeOverflows: number;
}

interface HostTiming {
  enabled: boolean;
  batches: number;
  dispatches: number;
  clockReads: number;
  phases: Record<string, { us: number; calls: number }>;
}

interface Profile {
  timeline: number;
  batchGpuTimeUs: number;
  dispatchCount: number;
  dispatchTimesUs: Float64Array;
}

/** Contract §4, with the types that the trainer passes. */
interface TrainerAddon {
  initDevice(): DeviceInfo;
  createBuffer(byteLength: number, hostVisible?: number, temporary?: number): number;
  uploadBuffer(handle: number, data: Float32Array): void;
  uploadBuffer(handle: number, data: ArrayBufferView | ArrayBuffer): void;
  uploadAsync(handle: number, data: ArrayBufferView | ArrayBuffer, byteOffset?: number): number;
  fillBuffer(handle: number, byteSize: number, value: number): void;
  readBuffer(handle: number): Float32Array;
  destroyBuffer(handle: number): void;
  createPipeline(spirv: Uint32Array, numBindings: number, pushConstantSize?: number): number;
  dispatch(pipeline: number, buffers: number[], gX: number, gY?: number, gZ?: number, pushConstants?: Float32Array): number;
  batchBegin(): void;
  batchDispatch(
    pipeline: number,
    buffers: number[],
    gX: number,
    gY?: number,
    gZ?: number,
    pushConstants?: Float32Array,
    writeMask?: Uint32Array,
  ): void;
  batchDispatchMany(packed: ArrayBuffer, count: number): void;
  batchDispatchMany(list: ArrayBuffer): void;
  batchSubmit(): number;
  batchExecuteAll(packed: ArrayBuffer, count: number): number;
  batchExecuteAll(list: ArrayBuffer): number;
  batchExecuteAllProfiled(packed: ArrayBuffer, count: number): Profile;
  batchExecuteAllDGC(packed: ArrayBuffer, count: number): number;
  dgcSetup(pipelineSlot: number, pushConstantSize: number, maxSequences: number): boolean;
  dgcInfo(): { hasBDA: boolean; hasDGC: boolean; stride: number; maxSequences: number };
  dgcGetCommandBuffer(): ArrayBuffer;
  dgcExecute(count: number): number;
  dgcGetBufferAddress(handle: number): number[];
  waitTimeline(value: number): void;
  getCompleted(): number;
  gpuTime(
    pipeline: number,
    buffers: number[],
    gX: number,
    gY?: number,
    gZ?: number,
    pushConstants?: Float32Array,
    iters?: number,
    warmup?: number,
  ): number;
  waitIdle(): void;
  destroy(): void;
  getAllocatorStats(): AllocatorStats;
  getHostTiming(): HostTiming;
  resetHostTiming(): void;
}

/** The assertion: fails to compile, with the offending member, if a call is missing or too narrow. */
export const satisfied = (module: typeof helios): TrainerAddon => module;

/** What the trainer does with the module. Only compiled. */
export function typicalUse(vk: typeof helios): number {
  const info = vk.initDevice();
  const bytes: number = info.deviceLocalMemoryBytes;
  const names: string[] = [info.deviceTypeName, info.apiVersionText];
  for (const { MSize, ATypeName, scopeName } of info.cooperativeMatrixProperties) names.push(`${MSize} ${ATypeName} ${scopeName}`);
  const buffer: number = vk.createBuffer(bytes, 0);
  vk.createBuffer(64, 1, true);
  vk.createBuffer(64, 1, 1);
  vk.uploadBuffer(buffer, new Float32Array(4));
  vk.uploadBuffer(buffer, new Int32Array(4));
  vk.uploadBuffer(buffer, new DataView(new ArrayBuffer(4)));
  vk.uploadBuffer(buffer, new ArrayBuffer(4));
  const uploaded: number = vk.uploadAsync(buffer, new Uint8Array(3), 8);
  vk.fillBuffer(buffer, 16, 0xffffffff);
  const read: Float32Array = vk.readBuffer(buffer);
  const plain: number = vk.createPipeline(new Uint32Array(5));
  const pipeline: number = vk.createPipeline(new Uint32Array(5), 3, 8, {
    specialization: Uint32Array.of(1),
    requiredSubgroupSize: 32,
    fullSubgroups: true,
    name: 'matmul',
  });
  vk.dispatch(pipeline, [buffer], 1);
  vk.dispatch(pipeline, [buffer], 1, 1, 1, new Float32Array(2));
  vk.dispatch(pipeline, [buffer], 1, undefined, undefined, new Uint32Array(2));
  vk.batchBegin();
  vk.batchDispatch(pipeline, [buffer], 1, 1, 1, new Float32Array(2), Uint32Array.of(1));
  vk.batchDispatchMany(new ArrayBuffer(0), 0);
  const submitted: number = vk.batchSubmit();
  vk.waitTimeline(submitted);
  const [low, high] = vk.dgcGetBufferAddress(buffer);
  const profile = vk.batchExecuteAllProfiled(new ArrayBuffer(0), 0);
  const first: number | undefined = profile.dispatchTimesUs[0];
  const shader = vk.shaders.scale;
  if (shader) {
    const size: readonly number[] = shader.workgroupSize;
    vk.createPipeline(shader.spirv, shader.bindings, shader.pushBytes);
    return size.length;
  }
  return uploaded + read.length + plain + (low ?? 0) + (high ?? 0) + (first ?? 0);
}

/** What must not compile. */
export function misuse(vk: typeof helios): void {
  // @ts-expect-error the number of Vulkan's, not a name
  const deviceType: string = vk.initDevice().deviceType;
  // @ts-expect-error the packed version, not a text
  const apiVersion: string = vk.initDevice().apiVersion;
  void deviceType;
  void apiVersion;
  // @ts-expect-error a size is a number
  vk.createBuffer('64');
  // @ts-expect-error a size is needed
  vk.createBuffer();
  // @ts-expect-error a plain array is no data
  vk.uploadBuffer(0, [1, 2, 3]);
  // @ts-expect-error data is needed
  vk.uploadBuffer(0);
  // @ts-expect-error an offset is a number
  vk.uploadAsync(0, new Uint8Array(1), '4');
  // @ts-expect-error SPIR-V comes as words
  vk.createPipeline(new Uint8Array(20), 1);
  // @ts-expect-error buffers come as an array
  vk.dispatch(0, 1, 1);
  // @ts-expect-error handles are numbers
  vk.dispatch(0, ['1'], 1);
  // @ts-expect-error groups are needed
  vk.dispatch(0, [1]);
  // @ts-expect-error a mask is a Uint32Array
  vk.batchDispatch(0, [1], 1, 1, 1, undefined, 1);
  // @ts-expect-error a list is an ArrayBuffer
  vk.batchExecuteAll([1, 2, 3], 1);
  // @ts-expect-error a timeline value is a number
  vk.waitTimeline('1');
  // @ts-expect-error nothing is returned
  const nothing: number = vk.batchBegin();
  // @ts-expect-error no such option
  vk.createPipeline(new Uint32Array(5), 1, 0, { subgroup: 32 });
  // @ts-expect-error no such call
  vk.readbuffer(0);
  void nothing;
}
