/* A driver of CUDA and an NCCL in one library, for tests on a machine without either: the calls that crates/collectives
 * binds, over the memory of a software device and the timelines that the layer of this folder exports.
 *
 * HELIOS_STUB_FOLDER is where ranks meet, HELIOS_STUB_UUID the device that Vulkan has. HELIOS_STUB_FAIL=CALL:NTH makes the nth
 * call of CALL fail. When the process ends, one line on the standard error says what was called, what was not freed, and what
 * no program may do: `@stub {"calls":{...},"live":N,"violations":[...]}`. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What has happened. */

static struct {
  const char *name;
  int count;
} calls[64];
static int kinds;
static _Atomic int live;
static char violations[4096];
static pthread_mutex_t books = PTHREAD_MUTEX_INITIALIZER;

static void violation(const char *text) {
  pthread_mutex_lock(&books);
  size_t used = strlen(violations);
  snprintf(violations + used, sizeof violations - used, "%s\"%s\"", used ? "," : "", text);
  pthread_mutex_unlock(&books);
}

/* Counts a call; whether it must fail. */
static int enter(const char *name) {
  pthread_mutex_lock(&books);
  int i = 0;
  while (i < kinds && strcmp(calls[i].name, name)) i++;
  if (i == kinds) calls[kinds++].name = name;
  int count = ++calls[i].count;
  pthread_mutex_unlock(&books);
  const char *wanted = getenv("HELIOS_STUB_FAIL");
  const char *nth = wanted ? strchr(wanted, ':') : NULL;
  size_t length = nth ? (size_t)(nth - wanted) : 0;
  return nth && strlen(name) == length && !strncmp(wanted, name, length) && atoi(nth + 1) == count;
}

/* A call's first line. CUDA's 999 is an unknown error, NCCL's 3 an internal one. */
#define CALL(...)                              \
  do {                                         \
    if (enter(__func__)) return __VA_ARGS__;   \
  } while (0)

__attribute__((destructor)) static void say(void) {
  fprintf(stderr, "@stub {\"calls\":{");
  for (int i = 0; i < kinds; i++) fprintf(stderr, "%s\"%s\":%d", i ? "," : "", calls[i].name, calls[i].count);
  fprintf(stderr, "},\"live\":%d,\"violations\":[%s]}\n", live, violations);
}

/* The device and its context. */

typedef struct { unsigned char bytes[16]; } Uuid;
static int context;
static _Thread_local void *current;

int cuInit(unsigned flags) {
  CALL(999);
  return flags ? 1 : 0;
}

int cuGetErrorName(int status, const char **name) {
  *name = status == 999 ? "CUDA_ERROR_UNKNOWN" : status == 1 ? "CUDA_ERROR_INVALID_VALUE" : NULL;
  return *name ? 0 : 1;
}

/* Two, of which the second is Vulkan's, as HELIOS_STUB_UUID says in hexadecimal. */
int cuDeviceGetCount(int *count) {
  CALL(999);
  *count = 2;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  CALL(999);
  *device = ordinal;
  return 0;
}

int cuDeviceGetUuid_v2(Uuid *uuid, int device) {
  CALL(999);
  memset(uuid, 0xee, sizeof *uuid);
  const char *text = getenv("HELIOS_STUB_UUID");
  for (int i = 0; device == 1 && text && *text && i < 16;) {
    unsigned byte;
    if (*text == '-') text++;
    if (sscanf(text, "%2x", &byte) != 1) break;
    uuid->bytes[i++] = (unsigned char)byte;
    text += 2;
  }
  return 0;
}

int cuDevicePrimaryCtxRetain(void **raw, int device) {
  CALL(999);
  if (device != 1) violation("the context of another device");
  live++;
  *raw = &context;
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  CALL(999);
  (void)device;
  live--;
  return 0;
}

int cuCtxSetCurrent(void *raw) {
  CALL(999);
  current = raw;
  return 0;
}

/* Streams: a thread each, which carries out what it is given in order. */

typedef struct Work {
  struct Work *next;
  void (*run)(struct Work *);
  void *what;
  void *to;
  const void *from;
  size_t bytes;
  uint64_t value;
  int kind, root;
} Work;

typedef struct {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  Work *first, **last;
  int pending, ends;
} Stream;

static void *stream_thread(void *raw) {
  Stream *stream = raw;
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    while (!stream->first && !stream->ends) pthread_cond_wait(&stream->wake, &stream->lock);
    Work *work = stream->first;
    if (!work) break;
    stream->first = work->next;
    if (!stream->first) stream->last = &stream->first;
    pthread_mutex_unlock(&stream->lock);
    work->run(work);
    free(work);
    pthread_mutex_lock(&stream->lock);
    stream->pending--;
  }
  pthread_mutex_unlock(&stream->lock);
  return NULL;
}

static void give(Stream *stream, Work work) {
  Work *own = malloc(sizeof work);
  *own = work;
  own->next = NULL;
  pthread_mutex_lock(&stream->lock);
  *stream->last = own;
  stream->last = &own->next;
  stream->pending++;
  pthread_cond_signal(&stream->wake);
  pthread_mutex_unlock(&stream->lock);
}

int cuStreamCreate(void **raw, unsigned flags) {
  CALL(999);
  if (current != &context) return 201;
  if (flags != 1) violation("a stream that waits for the default one");
  Stream *stream = calloc(1, sizeof *stream);
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->wake, NULL);
  stream->last = &stream->first;
  pthread_create(&stream->thread, NULL, stream_thread, stream);
  live++;
  *raw = stream;
  return 0;
}

int cuStreamQuery(Stream *stream) {
  CALL(999);
  pthread_mutex_lock(&stream->lock);
  int pending = stream->pending;
  pthread_mutex_unlock(&stream->lock);
  return pending ? 600 : 0;
}

int cuStreamDestroy_v2(Stream *stream) {
  int fails = enter(__func__);
  pthread_mutex_lock(&stream->lock);
  if (stream->pending) violation("a stream destroyed at work");
  stream->ends = 1;
  pthread_cond_signal(&stream->wake);
  pthread_mutex_unlock(&stream->lock);
  pthread_join(stream->thread, NULL);
  free(stream);
  live--;
  return fails ? 999 : 0;
}

/* Memory: what Vulkan exports here is a file, which begins with its size and the place of the data. */

typedef struct {
  void *base;
  size_t length;
  uint64_t data;
} Memory;

typedef struct { unsigned kind, pad; int fd; unsigned rest[3]; uint64_t size; unsigned flags, reserved[17]; } MemoryHandle;
typedef struct { uint64_t offset, size; unsigned flags, reserved[17]; } MappedRange;
_Static_assert(sizeof(MemoryHandle) == 104 && sizeof(MappedRange) == 88, "as cuda.h has them");

int cuImportExternalMemory(void **raw, const MemoryHandle *handle) {
  CALL(999);
  struct stat status;
  uint64_t head[2];
  if (handle->kind != 1 || fstat(handle->fd, &status) || pread(handle->fd, head, 16, 0) != 16) return 1;
  if (head[1] + handle->size > (uint64_t)status.st_size) return 1;
  void *base = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, handle->fd, 0);
  if (base == MAP_FAILED) return 1;
  close(handle->fd);
  Memory *memory = malloc(sizeof *memory);
  *memory = (Memory){base, status.st_size, (uint64_t)(uintptr_t)base + head[1]};
  live++;
  *raw = memory;
  return 0;
}

int cuExternalMemoryGetMappedBuffer(uint64_t *address, Memory *memory, const MappedRange *range) {
  CALL(999);
  if (range->flags) return 1;
  live++;
  *address = memory->data + range->offset;
  return 0;
}

int cuDestroyExternalMemory(Memory *memory) {
  CALL(999);
  munmap(memory->base, memory->length);
  free(memory);
  live--;
  return 0;
}

/* Memory of CUDA's own, which another process may open: its handle says where the descriptor is. */

static struct { uint64_t address; size_t bytes; int fd; } heap[64];

static int add_heap(uint64_t *address, size_t bytes, int fd) {
  void *data = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  for (int i = 0; data != MAP_FAILED && i < 64; i++) {
    if (heap[i].address) continue;
    heap[i].address = *address = (uint64_t)(uintptr_t)data;
    heap[i].bytes = bytes;
    heap[i].fd = fd;
    live++;
    return 0;
  }
  return 2;
}

/* Whether it was there. */
static int drop_heap(uint64_t address) {
  for (int i = 0; i < 64; i++) {
    if (heap[i].address != address) continue;
    munmap((void *)(uintptr_t)address, heap[i].bytes);
    close(heap[i].fd);
    heap[i].address = 0;
    return 1;
  }
  return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  CALL(999);
  int fd = memfd_create("cuMemAlloc", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, bytes)) return 2;
  return add_heap(address, bytes, fd);
}

/* Of mapped memory of Vulkan's, too, which is not in the heap. */
int cuMemFree_v2(uint64_t address) {
  int fails = enter(__func__);
  drop_heap(address);
  live--;
  return fails ? 999 : 0;
}

int cuMemHostAlloc(void **raw, size_t bytes, unsigned flags) {
  CALL(999);
  (void)flags;
  *raw = malloc(bytes);
  live++;
  return 0;
}

int cuMemFreeHost(void *raw) {
  CALL(999);
  free(raw);
  live--;
  return 0;
}

static void run_copy(Work *work) { memcpy(work->to, work->from, work->bytes); }

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
  CALL(999);
  give(stream, (Work){.run = run_copy, .to = (void *)(uintptr_t)to, .from = from, .bytes = bytes});
  return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
  CALL(999);
  give(stream, (Work){.run = run_copy, .to = to, .from = (void *)(uintptr_t)from, .bytes = bytes});
  return 0;
}

/* Timelines: what the layer exports is a pipe that holds the functions to use and what to use them on. */

typedef struct {
  void *device;
  uint64_t semaphore;
  int (*wait)(void *, const void *, uint64_t);
  int (*signal)(void *, const void *);
  int (*counter)(void *, uint64_t, uint64_t *);
} Timeline;

typedef struct { unsigned kind, pad; int fd; unsigned rest[3]; unsigned flags, reserved[17]; } SemaphoreHandle;
typedef struct { uint64_t value; unsigned reserved[34]; } SemaphoreValue;
_Static_assert(sizeof(SemaphoreValue) == 144, "as cuda.h has it");

int cuImportExternalSemaphore(void **raw, const SemaphoreHandle *handle) {
  CALL(999);
  Timeline *timeline = malloc(sizeof *timeline);
  if (handle->kind != 9 || read(handle->fd, timeline, sizeof *timeline) != sizeof *timeline) {
    free(timeline);
    return 1;
  }
  close(handle->fd);
  live++;
  *raw = timeline;
  return 0;
}

int cuDestroyExternalSemaphore(Timeline *timeline) {
  CALL(999);
  free(timeline);
  live--;
  return 0;
}

/* VkSemaphoreSignalInfo. */
typedef struct { int type; const void *next; uint64_t semaphore, value; } SignalInfo;

static void run_signal(Work *work) {
  Timeline *timeline = work->what;
  uint64_t counter = 0;
  timeline->counter(timeline->device, timeline->semaphore, &counter);
  if (counter >= work->value) return violation("a timeline signalled backwards");
  SignalInfo info = {1000207005, NULL, timeline->semaphore, work->value};
  timeline->signal(timeline->device, &info);
}

int cuSignalExternalSemaphoresAsync(Timeline *const *timelines, const SemaphoreValue *values, unsigned count, Stream *stream) {
  CALL(999);
  for (unsigned i = 0; i < count; i++) give(stream, (Work){.run = run_signal, .what = timelines[i], .value = values[i].value});
  return 0;
}

/* NCCL: ranks are processes that share a file, through which data go in pieces. */

#define PIECE 65536
#define RANKS 8

typedef struct { unsigned char bytes[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;

typedef struct {
  _Atomic unsigned joined, arrived, round;
  unsigned char data[RANKS][PIECE];
} Shared;

typedef struct {
  int rank, size;
  Shared *shared;
  char path[PATH_MAX];
  pthread_t thread;
  /* As ncclCommGetAsyncError says it: 7 is in progress. */
  _Atomic int state;
  _Atomic int aborted;
  _Atomic int busy;
} Comm;

const char *ncclGetErrorString(int status) { return status == 3 ? "internal error" : "an error"; }

const char *ncclGetLastError(void *comm) {
  (void)comm;
  return "made to fail";
}

int ncclGetVersion(int *version) {
  CALL(3);
  *version = 22705;
  return 0;
}

int ncclGetUniqueId(Id *id) {
  CALL(3);
  int file = open("/dev/urandom", O_RDONLY);
  if (read(file, id, sizeof *id) != sizeof *id) return 3;
  close(file);
  return 0;
}

/* Waits for all ranks; false where this one gives up. */
static int meet(Comm *comm) {
  unsigned round = comm->shared->round;
  if (++comm->shared->arrived == (unsigned)comm->size) {
    comm->shared->arrived = 0;
    comm->shared->round++;
    return 1;
  }
  while (comm->shared->round == round) {
    if (comm->aborted) return 0;
    usleep(20);
  }
  return 1;
}

static void *join(void *raw) {
  Comm *comm = raw;
  comm->shared->joined++;
  while (comm->shared->joined < (unsigned)comm->size && !comm->aborted) usleep(100);
  if (comm->rank == 0) unlink(comm->path);
  comm->state = 0;
  return NULL;
}

int ncclCommInitRankConfig(Comm **raw, int size, Id id, int rank, const Config *config) {
  CALL(3);
  if (config->magic != 0xcafebeef || config->size != 24 || config->version != 21400 || config->blocking != 0) return 4;
  if (current != &context || size > RANKS) return 5;
  Comm *comm = calloc(1, sizeof *comm);
  comm->rank = rank;
  comm->size = size;
  comm->state = 7;
  uint64_t name;
  memcpy(&name, id.bytes, sizeof name);
  const char *folder = getenv("HELIOS_STUB_FOLDER");
  snprintf(comm->path, sizeof comm->path, "%s/%016llx", folder ? folder : "/tmp", (unsigned long long)name);
  int file = open(comm->path, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared))) return 2;
  comm->shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  pthread_create(&comm->thread, NULL, join, comm);
  live++;
  *raw = comm;
  return 7;
}

int ncclCommGetAsyncError(Comm *comm, int *state) {
  CALL(3);
  *state = comm->state;
  /* The one after that is through. */
  if (comm->busy == 0 && comm->state == 7 && comm->shared->joined >= (unsigned)comm->size) comm->state = 0;
  return 0;
}

static void release(Comm *comm) {
  pthread_join(comm->thread, NULL);
  while (comm->busy) usleep(100);
  munmap(comm->shared, sizeof(Shared));
  free(comm);
  live--;
}

int ncclCommFinalize(Comm *comm) {
  CALL(3);
  comm->state = 7;
  return 7;
}

int ncclCommDestroy(Comm *comm) {
  int fails = enter(__func__);
  release(comm);
  return fails ? 3 : 0;
}

int ncclCommAbort(Comm *comm) {
  int fails = enter(__func__);
  comm->aborted = 1;
  release(comm);
  return fails ? 3 : 0;
}

enum { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL };

/* One piece of every rank's data; afterwards all ranks may use theirs again. */
static int piece(Comm *comm, const void *own, size_t bytes, void (*use)(Comm *, void *, size_t), void *to) {
  memcpy(comm->shared->data[comm->rank], own, bytes);
  if (!meet(comm)) return 0;
  use(comm, to, bytes);
  return meet(comm);
}

/* In the order of ranks, so that all get the same. */
static void add(Comm *comm, void *to, size_t bytes) {
  float *sums = to;
  if (!to) return;
  for (size_t i = 0; i < bytes / 4; i++) {
    float sum = 0;
    for (int rank = 0; rank < comm->size; rank++) sum += ((float *)comm->shared->data[rank])[i];
    sums[i] = sum;
  }
}

static _Thread_local size_t apart;
static _Thread_local int source;

static void gather(Comm *comm, void *to, size_t bytes) {
  if (!to) return;
  for (int rank = 0; rank < comm->size; rank++) memcpy((char *)to + rank * apart, comm->shared->data[rank], bytes);
}

static void take(Comm *comm, void *to, size_t bytes) { memmove(to, comm->shared->data[source], bytes); }

static void run_collective(Work *work) {
  Comm *comm = work->what;
  const char *from = work->from;
  char *to = work->to;
  int sharded = work->kind == REDUCE_SCATTER || work->kind == ALL_TO_ALL;
  int shards = sharded ? comm->size : 1;
  for (int shard = 0; shard < shards; shard++) {
    for (size_t at = 0; at < work->bytes; at += PIECE) {
      size_t bytes = work->bytes - at < PIECE ? work->bytes - at : PIECE;
      apart = work->bytes;
      source = work->root;
      const char *own = from + shard * work->bytes + at;
      int here = !sharded || shard == comm->rank;
      int gathers = work->kind == ALL_GATHER || work->kind == ALL_TO_ALL;
      void (*use)(Comm *, void *, size_t) = gathers ? gather : work->kind == BROADCAST ? take : add;
      if (!piece(comm, own, bytes, use, here ? to + at : NULL)) goto out;
    }
  }
out:
  comm->busy--;
}

static int collective(Comm *comm, Stream *stream, Work work) {
  work.run = run_collective;
  work.what = comm;
  comm->busy++;
  comm->state = 0;
  give(stream, work);
  return 7;
}

/* Floats alone are added. */
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, Comm *comm, Stream *stream) {
  CALL(3);
  if (type != 7 || op != 0) return 4;
  return collective(comm, stream, (Work){.kind = ALL_REDUCE, .from = from, .to = to, .bytes = 4 * count});
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, Comm *comm, Stream *stream) {
  CALL(3);
  if (type != 7 || op != 0) return 4;
  return collective(comm, stream, (Work){.kind = REDUCE_SCATTER, .from = from, .to = to, .bytes = 4 * count});
}

int ncclAllGather(const void *from, void *to, size_t count, int type, Comm *comm, Stream *stream) {
  CALL(3);
  if (type != 1) return 4;
  return collective(comm, stream, (Work){.kind = ALL_GATHER, .from = from, .to = to, .bytes = count});
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Comm *comm, Stream *stream) {
  CALL(3);
  if (type != 1) return 4;
  return collective(comm, stream, (Work){.kind = BROADCAST, .from = from, .to = to, .bytes = count, .root = root});
}

/* Between these two one exchange with all ranks is put together: its shards lie one behind the other, by rank. */
static _Thread_local struct { Comm *comm; Stream *stream; const char *from; char *to; size_t bytes; int sent, received; } exchange;

int ncclGroupStart(void) {
  CALL(3);
  exchange.comm = NULL;
  exchange.sent = exchange.received = 0;
  return 0;
}

int ncclSend(const void *from, size_t count, int type, int peer, Comm *comm, Stream *stream) {
  CALL(3);
  if (peer == 0) exchange.from = from;
  if (type != 1 || peer != exchange.sent++ || (const char *)from != exchange.from + peer * count) return 4;
  exchange.comm = comm;
  exchange.stream = stream;
  exchange.bytes = count;
  return 0;
}

int ncclRecv(void *to, size_t count, int type, int peer, Comm *comm, Stream *stream) {
  CALL(3);
  if (peer == 0) exchange.to = to;
  if (type != 1 || peer != exchange.received++ || (char *)to != exchange.to + peer * count) return 4;
  return comm == exchange.comm && stream == exchange.stream && count == exchange.bytes ? 0 : 4;
}

int ncclGroupEnd(void) {
  CALL(3);
  Comm *comm = exchange.comm;
  if (!comm) return 0;
  if (exchange.sent != comm->size || exchange.received != comm->size) return 4;
  Work work = {.kind = ALL_TO_ALL, .from = exchange.from, .to = exchange.to, .bytes = exchange.bytes};
  return collective(comm, exchange.stream, work);
}
