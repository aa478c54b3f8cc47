// A Node-API module that keeps a CUDA device busy: `start(microseconds, blocks)` launches a kernel of so many blocks, each of which waits so
// long, `copy(times)` copies 64 MiB so often to the next device or, where there is none, to the host, and `finish()` waits for the end of
// either. CUDA's calls are found at run time. Declared here, so that it builds without Node's headers:
//
//   cc -O2 -shared -fPIC -o overlap.node benches/overlap.c -ldl

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef void *value;

extern int napi_create_function(void *env, const char *name, size_t length, value (*body)(void *, void *), void *data, value *result);
extern int napi_set_named_property(void *env, value object, const char *name, value property);
extern int napi_get_cb_info(void *env, void *info, size_t *count, value *arguments, value *self, void **data);
extern int napi_get_value_double(void *env, value number, double *result);
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

/// The name of the call that failed, or NULL.
static const char *failed;

#define CALL(name, types, ...)                                        \
  do {                                                                \
    int (*call) types = (int (*) types)dlsym(library, name);          \
    if (!failed && (!call || call(__VA_ARGS__) != 0)) failed = name;  \
  } while (0)

static void begin(void) {
  if (function) return;
  int device = 0;
  void *module = NULL;
  if (!library && !(library = dlopen("libcuda.so.1", RTLD_NOW))) {
    failed = "dlopen of libcuda.so.1";
    return;
  }
  CALL("cuInit", (unsigned), 0);
  CALL("cuDeviceGet", (int *, int), &device, 0);
  CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
  CALL("cuCtxSetCurrent", (void *), context);
  CALL("cuStreamCreate", (void **, unsigned), &stream, 1);
  CALL("cuModuleLoadData", (void **, const void *), &module, WAIT);
  CALL("cuModuleGetFunction", (void **, void *, const char *), &function, module, "wait");
}

static value answer(void *env) {
  if (failed) napi_throw_error(env, NULL, failed);
  failed = NULL;
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
  for (int i = 0; i < (int)times && !failed; i++) {
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

value napi_register_module_v1(void *env, value exports) {
  value each;
  napi_create_function(env, NULL, 0, start, NULL, &each);
  napi_set_named_property(env, exports, "start", each);
  napi_create_function(env, NULL, 0, copy, NULL, &each);
  napi_set_named_property(env, exports, "copy", each);
  napi_create_function(env, NULL, 0, finish, NULL, &each);
  napi_set_named_property(env, exports, "finish", each);
  return exports;
}
