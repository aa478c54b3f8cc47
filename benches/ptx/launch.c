// Times the matrix products of kernels/ptx/ through VK_NVX_binary_import, and checks each on 300 elements against float64.
//
//   cc -O2 -o launch launch.c -lvulkan -lm
//   ./launch list.txt NAME     the lines of list.txt that begin with NAME; make.mjs writes the list and the modules

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan.h>

// The extension's structures; the headers of some distributions lack them.
typedef struct { int sType; const void *pNext; size_t dataSize; const void *pData; } ModuleInfo;
typedef struct { int sType; const void *pNext; uint64_t module; const char *pName; } FunctionInfo;
typedef struct {
  int sType; const void *pNext; uint64_t function;
  uint32_t gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  size_t paramCount; const void *const *pParams; size_t extraCount; const void *const *pExtras;
} LaunchInfo;

static VkPhysicalDevice gpu;
static VkDevice device;
static VkQueue queue;
static VkPhysicalDeviceMemoryProperties memory;
static VkCommandBuffer commands;
static VkQueryPool stamps;
static VkResult (*createModule)(VkDevice, const ModuleInfo *, const void *, uint64_t *);
static VkResult (*createFunction)(VkDevice, const FunctionInfo *, const void *, uint64_t *);
static void (*cmdLaunch)(VkCommandBuffer, const LaunchInfo *);

static void check(VkResult result, const char *what) {
  if (result == VK_SUCCESS) return;
  printf("ERROR %s: %d\n", what, result);
  exit(1);
}
#define CHECK(call) check(call, #call)

typedef struct { VkBuffer buffer; VkDeviceMemory memory; void *host; uint64_t address, size; } Buffer;

static Buffer create(uint64_t size, VkFlags properties) {
  Buffer b = {.size = size};
  VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO, .size = size,
    .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT};
  CHECK(vkCreateBuffer(device, &info, 0, &b.buffer));
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(device, b.buffer, &needs);
  uint32_t type = 0;
  while (type < memory.memoryTypeCount && (!(needs.memoryTypeBits >> type & 1) || (memory.memoryTypes[type].propertyFlags & properties) != properties)) type++;
  VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO, .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
  VkMemoryAllocateInfo allocate = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &flags, .allocationSize = needs.size, .memoryTypeIndex = type};
  CHECK(vkAllocateMemory(device, &allocate, 0, &b.memory));
  CHECK(vkBindBufferMemory(device, b.buffer, b.memory, 0));
  if (properties & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) CHECK(vkMapMemory(device, b.memory, 0, VK_WHOLE_SIZE, 0, &b.host));
  VkBufferDeviceAddressInfo of = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = b.buffer};
  b.address = vkGetBufferDeviceAddress(device, &of);
  return b;
}
static Buffer onDevice(uint64_t size) { return create(size, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT); }
static Buffer onHost(uint64_t size) { return create(size, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT); }
static void destroy(Buffer *b) {
  if (b->buffer) vkDestroyBuffer(device, b->buffer, 0);
  if (b->memory) vkFreeMemory(device, b->memory, 0);
  memset(b, 0, sizeof *b);
}

static uint64_t module(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) { printf("ERROR no %s\n", path); exit(1); }
  fseek(file, 0, SEEK_END);
  size_t size = ftell(file);
  rewind(file);
  char *text = calloc(size + 1, 1); // the driver wants the zero that ends the text
  if (fread(text, 1, size, file) != size) exit(1);
  fclose(file);
  ModuleInfo info = {1000029000, 0, size + 1, text};
  uint64_t m;
  check(createModule(device, &info, 0, &m), path);
  free(text);
  return m;
}
static uint64_t function(uint64_t module, const char *name) {
  FunctionInfo info = {1000029001, 0, module, name};
  uint64_t f;
  check(createFunction(device, &info, 0, &f), name);
  return f;
}
static void launch(uint64_t f, uint32_t blocks, uint32_t threads, void *parameters, size_t size) {
  const void *extras[] = {(void *)1, parameters, (void *)2, &size, 0}; // one packed block
  LaunchInfo info = {1000029002, 0, f, blocks, 1, 1, threads, 1, 1, 0, 0, 0, 1, extras};
  cmdLaunch(commands, &info);
}

static void begin(void) {
  VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  CHECK(vkResetCommandBuffer(commands, 0));
  CHECK(vkBeginCommandBuffer(commands, &info));
  vkCmdResetQueryPool(commands, stamps, 0, 128);
}
static void barrier(VkPipelineStageFlags stages) {
  VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER, .srcAccessMask = VK_ACCESS_MEMORY_WRITE_BIT, .dstAccessMask = VK_ACCESS_MEMORY_READ_BIT | VK_ACCESS_MEMORY_WRITE_BIT};
  vkCmdPipelineBarrier(commands, stages, stages, 0, 1, &all, 0, 0, 0, 0);
}
static void barrierAll(void) { barrier(VK_PIPELINE_STAGE_ALL_COMMANDS_BIT); }
static void barrierCompute(void) { barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT); }
static void copy(Buffer from, Buffer to) {
  VkBufferCopy region = {0, 0, from.size};
  vkCmdCopyBuffer(commands, from.buffer, to.buffer, 1, &region);
}
static void end(void) {
  CHECK(vkEndCommandBuffer(commands));
  VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO, .commandBufferCount = 1, .pCommandBuffers = &commands};
  CHECK(vkQueueSubmit(queue, 1, &info, 0));
  CHECK(vkQueueWaitIdle(queue));
}

/** Finds an NVIDIA device that has the extension; returns nanoseconds of a tick. */
static float open_(void) {
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
  VkInstanceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  VkInstance instance;
  CHECK(vkCreateInstance(&create, 0, &instance));
  uint32_t count = 8;
  VkPhysicalDevice gpus[8];
  vkEnumeratePhysicalDevices(instance, &count, gpus);
  VkPhysicalDeviceProperties properties = {0};
  for (uint32_t i = 0; i < count && properties.vendorID != 0x10de; i++) vkGetPhysicalDeviceProperties(gpu = gpus[i], &properties);
  if (properties.vendorID != 0x10de) { printf("ERROR no NVIDIA device\n"); exit(1); }
  vkGetPhysicalDeviceMemoryProperties(gpu, &memory);
  float one = 1;
  VkDeviceQueueCreateInfo queues = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &one};
  const char *extension = "VK_NVX_binary_import";
  VkPhysicalDeviceVulkan12Features features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .bufferDeviceAddress = 1};
  VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &features, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues, .enabledExtensionCount = 1, .ppEnabledExtensionNames = &extension};
  CHECK(vkCreateDevice(gpu, &info, 0, &device));
  vkGetDeviceQueue(device, 0, 0, &queue);
  createModule = (void *)vkGetDeviceProcAddr(device, "vkCreateCuModuleNVX");
  createFunction = (void *)vkGetDeviceProcAddr(device, "vkCreateCuFunctionNVX");
  cmdLaunch = (void *)vkGetDeviceProcAddr(device, "vkCmdCuLaunchKernelNVX");
  VkCommandPoolCreateInfo pools = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT};
  VkCommandPool pool;
  CHECK(vkCreateCommandPool(device, &pools, 0, &pool));
  VkCommandBufferAllocateInfo buffers = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, .commandPool = pool, .commandBufferCount = 1};
  CHECK(vkAllocateCommandBuffers(device, &buffers, &commands));
  VkQueryPoolCreateInfo queries = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, .queryType = VK_QUERY_TYPE_TIMESTAMP, .queryCount = 128};
  CHECK(vkCreateQueryPool(device, &queries, 0, &stamps));
  return properties.limits.timestampPeriod;
}

static float fromBf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
static int ascending(const void *x, const void *y) { return *(const double *)x < *(const double *)y ? -1 : 1; }

enum { RUNS = 24 };

int main(int count, char **arguments) {
  if (count != 3) { printf("usage: launch list.txt NAME\n"); return 2; }
  float period = open_();
  uint64_t helpers = module("helpers.ptx"), fill = function(helpers, "fill"), reduce = function(helpers, "reduce");
  FILE *list = fopen(arguments[1], "r");
  if (!list) { printf("ERROR no %s\n", arguments[1]); return 1; }
  Buffer a = {0}, b = {0}, c = {0}, work = {0}, hostA = {0}, hostB = {0}, hostC = {0};
  char line[4096], shape[64] = "";
  while (fgets(line, sizeof line, list)) {
    char name[64], path[128], entry[64], form[8], hex[1024];
    uint32_t threads, half, m, n, k, blocks, whole, rest, parts, bm, bn, floats;
    if (sscanf(line, "%63s %127s %63s %u %7s %u %u %u %u %u %u %u %u %u %u %u %1023s", name, path, entry, &threads, form, &half, &m, &n, &k, &blocks, &whole, &rest, &parts, &bm, &bn, &floats, hex) != 17) continue;
    if (strcmp(name, arguments[2])) continue;
    uint64_t product = function(module(path), entry);
    char key[64];
    snprintf(key, sizeof key, "%u %u %u", m, n, k);
    if (strcmp(key, shape)) {
      strcpy(shape, key);
      destroy(&a), destroy(&b), destroy(&hostA), destroy(&hostB);
      a = onDevice(2ull * m * k), b = onDevice(2ull * n * k), hostA = onHost(a.size), hostB = onHost(b.size);
      struct { uint64_t x; uint32_t words, seed; } fillA = {a.address, a.size / 4, 1}, fillB = {b.address, b.size / 4, 77777};
      begin();
      launch(fill, (fillA.words + 255) / 256, 256, &fillA, sizeof fillA);
      launch(fill, (fillB.words + 255) / 256, 256, &fillB, sizeof fillB);
      barrierAll();
      copy(a, hostA), copy(b, hostB);
      end();
    }
    destroy(&c), destroy(&work), destroy(&hostC);
    c = onDevice((half ? 2ull : 4ull) * m * n), hostC = onHost(c.size), work = onDevice(4ull * (floats ? floats : 64));
    uint8_t block[256];
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++) sscanf(hex + 2 * i, "%2hhx", &block[i]);
    memcpy(block, &a.address, 8), memcpy(block + 8, &b.address, 8), memcpy(block + 16, &c.address, 8), memcpy(block + 48, &work.address, 8);
    struct { uint64_t work, c; uint32_t m, n, bm, bn, whole, rest, parts, half; } sum = {work.address, c.address, m, n, bm, bn, whole, rest, parts, half};
    uint32_t sumBlocks = rest * (bm * bn / 4) / 256;

    begin();
    vkCmdFillBuffer(commands, c.buffer, 0, c.size, 0xffffffff); // NaN
    barrierAll();
    launch(product, blocks, threads, block, size);
    barrierCompute();
    if (parts > 1) launch(reduce, sumBlocks, 256, &sum, sizeof sum);
    barrierAll();
    copy(c, hostC);
    end();
    const uint16_t *ha = hostA.host, *hb = hostB.host, *halves = hostC.host;
    const float *floats32 = hostC.host;
    double error = 0, norm = 0;
    for (uint32_t s = 0; s < 300; s++) {
      uint32_t i = s * 2654435761u % m, j = (s * 40503u * 7919u + s * 131) % n;
      double x = 0;
      for (uint32_t l = 0; l < k; l++) x += (double)fromBf16(ha[form[0] == 'T' ? (size_t)l * m + i : (size_t)i * k + l]) * fromBf16(hb[form[1] == 'T' ? (size_t)j * k + l : (size_t)l * n + j]);
      double got = half ? fromBf16(halves[(size_t)i * n + j]) : floats32[(size_t)i * n + j];
      error += (got - x) * (got - x), norm += x * x;
    }
    size_t missing = 0;
    for (size_t i = 0; i < (size_t)m * n; i++) missing += half ? (halves[i] & 0x7f80) == 0x7f80 : !isfinite(floats32[i]);

    for (int pass = 0; pass < 2; pass++) { // the first warms up
      begin();
      for (int i = 0; i < RUNS; i++) {
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, stamps, 2 * i);
        launch(product, blocks, threads, block, size);
        barrierCompute();
        if (parts > 1) {
          launch(reduce, sumBlocks, 256, &sum, sizeof sum);
          barrierCompute();
        }
        vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, stamps, 2 * i + 1);
      }
      end();
    }
    uint64_t ticks[2 * RUNS];
    CHECK(vkGetQueryPoolResults(device, stamps, 0, 2 * RUNS, sizeof ticks, ticks, 8, VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    double us[RUNS];
    for (int i = 0; i < RUNS; i++) us[i] = (ticks[2 * i + 1] - ticks[2 * i]) * period / 1e3;
    qsort(us, RUNS, sizeof *us, ascending);
    double flop = 2.0 * m * n * k;
    printf("%-12s %s %5ux%5ux%5u, %3u blocks, %u parts: median %7.1f us %4.0f TFLOP/s, best %4.0f; error %.1e, missing %zu\n", name, form, m, n, k, blocks, parts, us[RUNS / 2], flop / us[RUNS / 2] / 1e6, flop / us[0] / 1e6, sqrt(error / norm), missing);
    fflush(stdout);
  }
  return 0;
}
