// A Node-API module that keeps a CUDA device busy: `start(microseconds, blocks)` launches a kernel of so many blocks, each of which waits so
// long, `copy(times)` copies 64 MiB so often to the next device or, where there is none, to the host, and `finish()` waits for the end of
// either. The calls that begin with `peer` are of one of two processes with a device each: see "Two processes" below. CUDA's calls are found
// at run time, as cuda.h 12.8 declares them. Node's are declared here, so that it builds without its headers:
//
//   cc -O2 -shared -fPIC -o overlap.node benches/overlap.c -ldl -lpthread

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef void *value;

extern int napi_create_function(void *env, const char *name, size_t length, value (*body)(void *, void *), void *data, value *result);
extern int napi_set_named_property(void *env, value object, const char *name, value property);
extern int napi_get_cb_info(void *env, void *info, size_t *count, value *arguments, value *self, void **data);
extern int napi_get_value_double(void *env, value number, double *result);
extern int napi_get_value_string_utf8(void *env, value text, char *buffer, size_t size, size_t *length);
extern int napi_create_double(void *env, double number, value *result);
extern int napi_create_array(void *env, value *result);
extern int napi_set_element(void *env, value array, uint32_t index, value element);
extern int napi_throw_error(void *env, const char *code, const char *message);

static const char WAIT[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry wait(.param .u64 nanoseconds)\n"
    "{\n.reg .u64 %t<3>;\n.reg .pred %p;\n"
    "ld.param.u64 %t0, [nanoseconds];\nmov.u64 %t1, %globaltimer;\nadd.u64 %t1, %t1, %t0;\n"
    "again:\nmov.u64 %t2, %globaltimer;\nsetp.lt.u64 %p, %t2, %t1;\n@%p bra again;\nret;\n}\n";

static void *library, *stream, *function, *context, *peer;

#define COPY_BYTES ((size_t)64 << 20)
/// What is copied, and to where: addresses of the device and of the next one, or of the host.
static uint64_t source, target;
static void *host;

/// What failed first, in words, or empty. Nothing more is called until it has been thrown.
static char failed[256];

static void fail(const char *text, const char *more) {
  if (!failed[0]) snprintf(failed, sizeof failed, "%s%s", text, more);
}

static void failCall(const char *name, int status) {
  const char *word = NULL;
  char text[128];
  int (*errorName)(int, const char **) = (int (*)(int, const char **))dlsym(library, "cuGetErrorName");
  if (errorName) errorName(status, &word);
  snprintf(text, sizeof text, " failed: %s (%d)", word ? word : "an unknown error", status);
  fail(name, text);
}

#define CALL(name, types, ...)                                                    \
  do {                                                                            \
    static int(*call) types;                                                      \
    if (failed[0]) break;                                                         \
    if (!call && !(call = (int(*) types)dlsym(library, name))) {                  \
      fail(name, ": this driver of CUDA does not have it");                       \
      break;                                                                      \
    }                                                                             \
    int status = call(__VA_ARGS__);                                               \
    if (status != 0) failCall(name, status);                                      \
  } while (0)

static void load(void) {
  if (!library && !(library = dlopen("libcuda.so.1", RTLD_NOW))) return fail("no CUDA: ", dlerror());
  CALL("cuInit", (unsigned), 0);
}

static void begin(void) {
  if (function) return;
  int device = 0;
  void *module = NULL;
  load();
  CALL("cuDeviceGet", (int *, int), &device, 0);
  CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
  CALL("cuCtxSetCurrent", (void *), context);
  CALL("cuStreamCreate", (void **, unsigned), &stream, 1);
  CALL("cuModuleLoadData", (void **, const void *), &module, WAIT);
  CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, "wait");
}

static value answer(void *env) {
  if (failed[0]) napi_throw_error(env, NULL, failed);
  failed[0] = 0;
  return NULL;
}

static value start(void *env, void *info) {
  value arguments[2];
  size_t count = 2;
  double microseconds = 0, blocks = 1;
  napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
  napi_get_value_double(env, arguments[0], &microseconds);
  napi_get_value_double(env, arguments[1], &blocks);
  uint64_t nanoseconds = (uint64_t)(microseconds * 1000);
  void *parameters[] = {&nanoseconds};
  begin();
  CALL("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **), function,
       (unsigned)blocks, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
  return answer(env);
}

/// Both devices have their memory once.
static void beginCopies(void) {
  int count = 0, next = 1;
  if (source) return;
  CALL("cuDeviceGetCount", (int *), &count);
  CALL("cuMemAlloc_v2", (uint64_t *, size_t), &source, COPY_BYTES);
  if (count < 2) {
    CALL("cuMemAllocHost_v2", (void **, size_t), &host, COPY_BYTES);
    return;
  }
  CALL("cuDeviceGet", (int *, int), &next, 1);
  CALL("cuDevicePrimaryCtxRetain", (void **, int), &peer, next);
  CALL("cuCtxSetCurrent", (void *), peer);
  CALL("cuMemAlloc_v2", (uint64_t *, size_t), &target, COPY_BYTES);
  CALL("cuCtxSetCurrent", (void *), context);
  // Without it copies between devices go through the host.
  CALL("cuCtxEnablePeerAccess", (void *, unsigned), peer, 0);
}

static value copy(void *env, void *info) {
  value arguments[1];
  size_t count = 1;
  double times = 1;
  napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
  napi_get_value_double(env, arguments[0], &times);
  begin();
  beginCopies();
  for (int i = 0; i < (int)times && !failed[0]; i++) {
    if (host)
      CALL("cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, void *), host, source, COPY_BYTES, stream);
    else
      CALL("cuMemcpyPeerAsync", (uint64_t, void *, uint64_t, void *, size_t, void *), target, peer, source, context, COPY_BYTES, stream);
  }
  return answer(env);
}

static value finish(void *env, void *info) {
  (void)info;
  CALL("cuStreamSynchronize", (void *), stream);
  return answer(env);
}

// Two processes, each with a device: what a sum out of copies by the copy engines could reach, driven by the host. Each rank owns one half
// of the gradients. It sends the other half to the inbox of the other rank (leg 1), which would add it to its own, and gets the sums of that
// half back the same way (leg 2). Nothing is added here, and nothing waits on the device: a thread looks at events, and tells the other
// process of what has arrived by numbers in memory of both.
//
// A device has `gradients`, two halves, and behind them `scratch`, one half, in memory that Vulkan exported; and an inbox of two halves, one
// for each leg, that CUDA allocated, since an address can be given to another process for such memory alone.

#define LEGS 2
#define STAGES 4
#define MAX_PIECES 256
#define MAX_TIMES 4096
#define LIMIT_MS 20000.0
#define NOT_READY 600
#define HANDOVER_BYTES 4096
#define BLOCK ((size_t)1 << 20)

// CUipcMemHandle, CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUDA_EXTERNAL_MEMORY_BUFFER_DESC and CUmemcpyAttributes.
typedef struct { char bytes[64]; } IpcHandle;
typedef struct { unsigned kind, pad; int fd; unsigned rest[3]; uint64_t size; unsigned flags, reserved[17]; } MemoryHandle;
typedef struct { uint64_t offset, size; unsigned flags, reserved[17]; } MappedRange;
typedef struct { int order; struct { int type, id; } from, to; unsigned flags; } CopyAttributes;
_Static_assert(sizeof(MemoryHandle) == 104 && sizeof(MappedRange) == 88 && sizeof(CopyAttributes) == 24, "as cuda.h has them");

/// In a file that both processes map, zeros at first.
typedef struct {
  /// How many barriers each rank has come to, and the number that rank 0 brought, of this and the last one.
  _Alignas(64) _Atomic uint32_t arrived[2];
  double number[2];
  /// Whether a rank has failed, and how.
  _Atomic uint32_t hasFailed[2];
  char failure[2][256];
  IpcHandle inbox[2];
  /// How many pieces each rank has brought to the other's inbox for each leg, and small copies, since the beginning.
  struct { _Alignas(64) _Atomic uint32_t count[LEGS], small; } sent[2];
} Shared;

static Shared *shared;
static int rank, other, ordinal;
static uint32_t barriers;
static uint64_t gradients, scratch, inbox, otherInbox;
static size_t half;
static void *streams[STAGES], *events[STAGES][MAX_PIECES];

enum { PUSH, INSIDE, INSIDE_OVERLAP, HANDOVER, EXCHANGE, EXCHANGE_OVERLAP, EXCHANGE_NO_INSIDE };
/// What the thread does: of which size, how often, and whether it looks again at once or asks for 20 µs of sleep.
static struct { int kind; size_t piece; int times, busy; } job;
static pthread_t thread;
static int running;
static double results[2 * MAX_TIMES], deadline;
static uint32_t resultCount;

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/// Whether to wait no longer.
static int over(const char *what) {
  if (shared->hasFailed[other]) fail("the other rank failed: ", shared->failure[other]);
  if (milliseconds() > deadline) fail(what, ": waited for 20 s");
  return failed[0] != 0;
}

static void rest(void) {
  struct timespec time = {0, 20000};
  if (!job.busy) nanosleep(&time, NULL);
}

static void record(int stage, int piece) { CALL("cuEventRecord", (void *, void *), events[stage][piece], streams[stage]); }

/// Whether the work before the event has ended. True after a failure too, so that nobody waits for it.
static int ended(int stage, int piece) {
  static int (*query)(void *);
  if (failed[0]) return 1;
  if (!query) query = (int (*)(void *))dlsym(library, "cuEventQuery");
  int status = query(events[stage][piece]);
  if (status != 0 && status != NOT_READY) failCall("cuEventQuery", status);
  return status != NOT_READY;
}

static void await(int stage, int piece) {
  while (!ended(stage, piece) && !over("a copy of CUDA's")) rest();
}

static void send(int stage, uint64_t to, uint64_t from, size_t bytes) {
  CALL("cuMemcpyDtoDAsync_v2", (uint64_t, uint64_t, size_t, void *), to, from, bytes, streams[stage]);
}

/// With the hint that it should overlap with kernels; since CUDA 12.8.
static void sendOverlapping(int stage, uint64_t to, uint64_t from, size_t bytes) {
  CopyAttributes attributes = {1, {1, ordinal}, {1, ordinal}, 1};
  size_t first = 0, failedIndex = 0;
  CALL("cuMemcpyBatchAsync", (uint64_t *, uint64_t *, size_t *, size_t, CopyAttributes *, size_t *, size_t, size_t *, void *), &to, &from, &bytes,
       1, &attributes, &first, 1, &failedIndex, streams[stage]);
}

/// A copy from the inbox to Vulkan's memory.
static void sendInside(int stage, uint64_t to, uint64_t from) {
  if (job.kind == INSIDE_OVERLAP || job.kind == EXCHANGE_OVERLAP) sendOverlapping(stage, to, from, job.piece);
  else send(stage, to, from, job.piece);
}

/// So many copies of one kind, one after the other. Result: how long they took, in ms.
static void runCopies(void) {
  double since = milliseconds();
  size_t pieces = half / job.piece;
  for (int i = 0; i < job.times && !failed[0]; i++) {
    size_t at = i % pieces * job.piece;
    if (job.kind == PUSH) send(0, otherInbox + at, gradients + other * half + at, job.piece);
    else sendInside(0, scratch + at, inbox + at);
  }
  record(0, 0);
  await(0, 0);
  results[resultCount++] = milliseconds() - since;
}

/// A small copy there, of which the other rank hears, and one back. Results in µs: from each copy's call to the sight of its end, then half
/// of each way there and back.
static void runHandovers(void) {
  uint32_t already = shared->sent[rank].small;
  for (int i = 0; i < job.times && !failed[0]; i++) {
    double since = milliseconds(), copied = 0;
    for (int turn = 0; turn < 2; turn++) {
      if (turn == rank) {
        double called = milliseconds();
        send(0, otherInbox, gradients, HANDOVER_BYTES);
        record(0, 0);
        await(0, 0);
        copied = milliseconds() - called;
        if (!failed[0]) shared->sent[rank].small = already + i + 1;
      } else {
        while (shared->sent[other].small == already + i && !over("a small copy of the other rank")) rest();
      }
    }
    results[i] = copied * 1e3;
    results[job.times + i] = (milliseconds() - since) * 1e3 / 2;
  }
  resultCount = 2 * job.times;
}

/// Both legs of all gradients, in pieces: 0 a piece of the half that the other rank owns goes to its inbox, 1 what has come is copied from
/// the inbox to Vulkan's memory, 2 a piece of the own half, now the sum, goes to the other's inbox, 3 what has come is copied to the half that
/// the other owns. Stages 1 and 3 may be left out, as if Vulkan could read the inbox. Result: how long it took, in ms.
static void runExchange(void) {
  int pieces = half / job.piece, inside = job.kind != EXCHANGE_NO_INSIDE;
  double since = milliseconds();
  for (int i = 0; i < job.times && !failed[0]; i++) {
    // The other rank's numbers of the last time are whole: this one has waited for all its pieces. It may have begun the next time.
    uint32_t already = shared->sent[rank].count[0];
    int issued[STAGES] = {0}, done[STAGES] = {0};
    while ((done[0] < pieces || done[2] < pieces || done[3] < pieces) && !over("the exchange")) {
      uint32_t come[LEGS] = {shared->sent[other].count[0] - already, shared->sent[other].count[1] - already};
      int before = done[0] + done[1] + done[2] + done[3];
      int ready[STAGES] = {pieces, come[0], done[1], come[1]};
      for (int stage = 0; stage < STAGES; stage++) {
        int copies = inside || stage % 2 == 0;
        for (; issued[stage] < ready[stage] && issued[stage] < pieces && !failed[0]; issued[stage]++) {
          size_t at = issued[stage] * job.piece;
          if (stage == 0) send(stage, otherInbox + at, gradients + other * half + at, job.piece);
          if (stage == 1 && inside) sendInside(stage, scratch + at, inbox + at);
          if (stage == 2) send(stage, otherInbox + half + at, gradients + rank * half + at, job.piece);
          if (stage == 3 && inside) sendInside(stage, gradients + other * half + at, inbox + half + at);
          if (copies) record(stage, issued[stage]);
        }
        while (done[stage] < issued[stage] && (!copies || ended(stage, done[stage])) && !failed[0]) {
          done[stage]++;
          if (stage % 2 == 0) shared->sent[rank].count[stage / 2] = already + done[stage];
        }
      }
      if (done[0] + done[1] + done[2] + done[3] == before) rest();
    }
  }
  results[resultCount++] = milliseconds() - since;
}

static void *run(void *nothing) {
  CALL("cuCtxSetCurrent", (void *), context);
  if (job.kind == HANDOVER) runHandovers();
  else if (job.kind >= EXCHANGE) runExchange();
  else runCopies();
  return nothing;
}

/// What is thrown here is told to the other rank.
static value peerAnswer(void *env) {
  if (failed[0]) {
    memcpy(shared->failure[rank], failed, sizeof failed);
    shared->hasFailed[rank] = 1;
  }
  return answer(env);
}

static void meet(double number) {
  uint32_t own = ++barriers;
  deadline = milliseconds() + LIMIT_MS;
  if (rank == 0) shared->number[own % 2] = number;
  shared->arrived[rank] = own;
  while (shared->arrived[other] < own && !over("a barrier")) sched_yield();
}

static value number(void *env, double from) {
  value result = NULL;
  napi_create_double(env, from, &result);
  return result;
}

static void openDevice(const char *uuid) {
  unsigned char wanted[16] = {0}, found[16] = {0};
  int count = 0, device = 0;
  for (int i = 0; i < 16 && *uuid; i++) {
    unsigned byte = 0;
    if (*uuid == '-') uuid++;
    sscanf(uuid, "%2x", &byte);
    wanted[i] = (unsigned char)byte;
    uuid += 2;
  }
  load();
  CALL("cuDeviceGetCount", (int *), &count);
  for (ordinal = 0; ordinal < count && !failed[0]; ordinal++) {
    CALL("cuDeviceGet", (int *, int), &device, ordinal);
    CALL("cuDeviceGetUuid_v2", (void *, int), found, device);
    if (!memcmp(found, wanted, 16)) break;
  }
  if (ordinal == count) fail("none of CUDA's devices is the one that Vulkan computes on: CUDA_VISIBLE_DEVICES may hide it", "");
  CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
  CALL("cuCtxSetCurrent", (void *), context);
  for (int stage = 0; stage < STAGES; stage++) {
    CALL("cuStreamCreate", (void **, unsigned), &streams[stage], 1);
    // Without times: 2 is CU_EVENT_DISABLE_TIMING.
    for (int i = 0; i < MAX_PIECES; i++) CALL("cuEventCreate", (void **, unsigned), &events[stage][i], 2);
  }
}

/// Whether the driver makes copies with the hint. One that does not is no failure.
static int overlapsInside(void) {
  if (failed[0] || !dlsym(library, "cuMemcpyBatchAsync")) return 0;
  sendOverlapping(0, scratch, inbox, HANDOVER_BYTES);
  record(0, 0);
  await(0, 0);
  if (failed[0]) fprintf(stderr, "rank %d: copies with the hint to overlap are left out: %s\n", rank, failed);
  int works = !failed[0];
  failed[0] = 0;
  return works;
}

/// peerOpen(file, rank, uuid, bytes of gradients, fd or -1, bytes of the memory behind it, whether that is one buffer's alone): 1 where copies
/// take a hint to overlap, else 0. Without a descriptor, CUDA allocates what would be Vulkan's.
static value peerOpen(void *env, void *info) {
  value arguments[7];
  size_t count = 7;
  char path[4096] = "", uuid[64] = "";
  double numbers[7] = {0};
  napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
  napi_get_value_string_utf8(env, arguments[0], path, sizeof path, NULL);
  napi_get_value_string_utf8(env, arguments[2], uuid, sizeof uuid, NULL);
  for (int i = 0; i < 7; i++) napi_get_value_double(env, arguments[i], &numbers[i]);
  rank = (int)numbers[1];
  other = 1 - rank;
  half = (size_t)numbers[3] / 2;
  int file = open(path, O_RDWR);
  void *mapped = MAP_FAILED;
  if (file >= 0 && !ftruncate(file, sizeof(Shared))) mapped = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (mapped == MAP_FAILED) return fail("cannot be mapped: ", path), answer(env);
  shared = mapped;
  openDevice(uuid);
  if (numbers[4] < 0) {
    CALL("cuMemAlloc_v2", (uint64_t *, size_t), &gradients, 3 * half);
  } else {
    MemoryHandle handle = {.kind = 1, .fd = (int)numbers[4], .size = (uint64_t)numbers[5], .flags = numbers[6] != 0};
    MappedRange range = {.size = handle.size};
    void *memory = NULL;
    CALL("cuImportExternalMemory", (void **, const MemoryHandle *), &memory, &handle);
    CALL("cuExternalMemoryGetMappedBuffer", (uint64_t *, void *, const MappedRange *), &gradients, memory, &range);
  }
  scratch = gradients + 2 * half;
  CALL("cuMemAlloc_v2", (uint64_t *, size_t), &inbox, 2 * half);
  CALL("cuIpcGetMemHandle", (IpcHandle *, uint64_t), &shared->inbox[rank], inbox);
  if (!failed[0]) meet(0);
  // 1 is CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, without which copies go through the host.
  CALL("cuIpcOpenMemHandle_v2", (uint64_t *, IpcHandle, unsigned), &otherInbox, shared->inbox[other], 1);
  if (!failed[0]) meet(0);
  int overlaps = overlapsInside();
  return failed[0] ? peerAnswer(env) : number(env, overlaps);
}

/// peerBarrier(number): waits for the other rank, and gives the number of rank 0.
static value peerBarrier(void *env, void *info) {
  value argument;
  size_t count = 1;
  double own = 0;
  napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
  napi_get_value_double(env, argument, &own);
  meet(own);
  return failed[0] ? peerAnswer(env) : number(env, shared->number[barriers % 2]);
}

static uint32_t words[BLOCK / 4];

/// What a block of 1 MiB of a rank's gradients is filled with.
static uint32_t pattern(int owner, size_t block) { return (uint32_t)((owner + 1) * 1000000 + block); }

/// peerFill(): the gradients with what names rank and block, scratch and the inbox with zeros.
static value peerFill(void *env, void *info) {
  (void)info;
  for (size_t block = 0; block < 5 * half / BLOCK && !failed[0]; block++) {
    size_t at = block * BLOCK;
    uint32_t word = at < 2 * half ? pattern(rank, block) : 0;
    for (size_t i = 0; i < BLOCK / 4; i++) words[i] = word;
    uint64_t to = at < 3 * half ? gradients + at : inbox + at - 3 * half;
    CALL("cuMemcpyHtoDAsync_v2", (uint64_t, const void *, size_t, void *), to, words, BLOCK, streams[0]);
    record(0, 0);
    deadline = milliseconds() + LIMIT_MS;
    await(0, 0);
  }
  return peerAnswer(env);
}

/// peerCheck(): throws unless an exchange of what `peerFill` left has brought every piece to its place.
static value peerCheck(void *env, void *info) {
  (void)info;
  char text[128];
  for (size_t block = 0; block < 3 * half / BLOCK && !failed[0]; block++) {
    size_t at = block * BLOCK, perHalf = half / BLOCK;
    int owner = (int)(block / perHalf);
    // Behind the gradients lies what the other rank sent of the half that this one owns.
    uint32_t word = owner < 2 ? pattern(owner, block) : pattern(other, rank * perHalf + block - 2 * perHalf);
    CALL("cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, void *), words, gradients + at, BLOCK, streams[0]);
    record(0, 0);
    deadline = milliseconds() + LIMIT_MS;
    await(0, 0);
    for (size_t i = 0; i < BLOCK / 4 && !failed[0]; i++) {
      if (words[i] == word) continue;
      snprintf(text, sizeof text, "rank %d, block %zu, word %zu: %u instead of %u", rank, block, i, words[i], word);
      fail("the exchange brought wrong data: ", text);
    }
  }
  return peerAnswer(env);
}

/// peerStart(kind, bytes of a piece, times, whether to look without sleep): a thread does it.
static value peerStart(void *env, void *info) {
  value arguments[4];
  size_t count = 4;
  double numbers[4] = {0};
  napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
  for (int i = 0; i < 4; i++) napi_get_value_double(env, arguments[i], &numbers[i]);
  job.kind = (int)numbers[0];
  job.piece = (size_t)numbers[1];
  job.times = (int)numbers[2];
  job.busy = numbers[3] != 0;
  resultCount = 0;
  deadline = milliseconds() + LIMIT_MS;
  if (!job.piece || half % job.piece || half / job.piece > MAX_PIECES || job.times > MAX_TIMES)
    fail("peerStart: ", "pieces must divide a half of the gradients into 256 at most");
  else if (pthread_create(&thread, NULL, run, NULL)) fail("pthread_create", " failed");
  else running = 1;
  return peerAnswer(env);
}

/// peerFinish(): waits for the thread, and gives its results.
static value peerFinish(void *env, void *info) {
  (void)info;
  value list;
  if (running) pthread_join(thread, NULL);
  running = 0;
  if (failed[0]) return peerAnswer(env);
  napi_create_array(env, &list);
  for (uint32_t i = 0; i < resultCount; i++) napi_set_element(env, list, i, number(env, results[i]));
  return list;
}

/// peerClose(): lets go of the other's inbox; once both ranks have, either may end, which frees the rest.
static value peerClose(void *env, void *info) {
  (void)info;
  CALL("cuIpcCloseMemHandle", (uint64_t), otherInbox);
  if (!failed[0]) meet(0);
  return peerAnswer(env);
}

value napi_register_module_v1(void *env, value exports) {
  static const struct { const char *name; value (*body)(void *, void *); } calls[] = {
      {"start", start},         {"copy", copy},           {"finish", finish},       {"peerOpen", peerOpen},     {"peerBarrier", peerBarrier},
      {"peerFill", peerFill},   {"peerCheck", peerCheck}, {"peerStart", peerStart}, {"peerFinish", peerFinish}, {"peerClose", peerClose},
  };
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    value each;
    napi_create_function(env, NULL, 0, calls[i].body, NULL, &each);
    napi_set_named_property(env, exports, calls[i].name, each);
  }
  return exports;
}
