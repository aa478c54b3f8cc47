// A Node-API module for `distributed.mjs`. `allReduce(floats, blocking)` calls `MPI_Allreduce` on an array of floats in host memory, in place,
// and returns the seconds that it took. If `blocking` is false, it calls `MPI_Iallreduce` and polls `MPI_Test` until that is done.
//
// It uses the MPI that has been started in this process, whose symbols are loaded globally. That MPI was started for one thread, the group's,
// and this is another one: call it only while the group has no work in flight. Functions are declared here, so that this builds without the
// headers of Node or of an MPI.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef void *value;
typedef value (*function)(void *env, void *info);

extern int napi_create_double(void *env, double number, value *result);
extern int napi_create_function(void *env, const char *name, size_t length, function body, void *data, value *result);
extern int napi_get_cb_info(void *env, void *info, size_t *count, value *arguments, value *self, void **data);
extern int napi_get_typedarray_info(void *env, value array, int *type, size_t *length, void **data, value *buffer, size_t *offset);
extern int napi_get_value_bool(void *env, value number, bool *result);
extern int napi_throw_error(void *env, const char *code, const char *message);

// `napi_float32_array`.
enum { FLOATS = 7 };

// Handles are pointers, or numbers of 32 bits (MPICH): both are passed in a register each, and a callee reads as much as is its own.
typedef int (*all_reduce)(const void *, void *, int, uintptr_t, uintptr_t, uintptr_t);
typedef int (*begin_all_reduce)(const void *, void *, int, uintptr_t, uintptr_t, uintptr_t, void *);
typedef int (*test)(void *, int *, void *);

static void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static value all_reduce_floats(void *env, void *info) {
  size_t count = 2, length = 0, offset = 0;
  value arguments[2], buffer;
  int type = 0;
  bool blocking = true;
  void *data = NULL;
  napi_get_cb_info(env, info, &count, arguments, NULL, NULL);
  if (count < 1 || napi_get_typedarray_info(env, arguments[0], &type, &length, &data, &buffer, &offset) != 0 || type != FLOATS ||
      length > INT32_MAX) {
    napi_throw_error(env, NULL, "allReduce takes a Float32Array");
    return NULL;
  }
  if (count > 1) napi_get_value_bool(env, arguments[1], &blocking);
  all_reduce sum = (all_reduce)find("MPI_Allreduce");
  begin_all_reduce begin = (begin_all_reduce)find("MPI_Iallreduce");
  test ask = (test)find("MPI_Test");
  if (!sum || !begin || !ask) {
    napi_throw_error(env, NULL, "no MPI is loaded in this process: init() first");
    return NULL;
  }
  // Open MPI is known by its objects. What is not Open MPI is MPICH.
  void *open_mpi = find("ompi_mpi_comm_world");
  const uintptr_t world = open_mpi ? (uintptr_t)open_mpi : 0x44000000;
  const uintptr_t floats = open_mpi ? (uintptr_t)find("ompi_mpi_float") : 0x4c00040a;
  const uintptr_t add = open_mpi ? (uintptr_t)find("ompi_mpi_op_sum") : 0x58000003;
  const void *in_place = (const void *)(open_mpi ? (intptr_t)1 : (intptr_t)-1);
  const double since = seconds();
  int status;
  if (blocking) {
    status = sum(in_place, data, (int)length, floats, add, world);
  } else {
    uintptr_t request = 0;
    uint64_t ended[16];
    int done = 0;
    status = begin(in_place, data, (int)length, floats, add, world, &request);
    while (status == 0 && !done) {
      sched_yield();
      status = ask(&request, &done, ended);
    }
  }
  if (status != 0) {
    napi_throw_error(env, NULL, "MPI_Allreduce failed");
    return NULL;
  }
  value result = NULL;
  napi_create_double(env, seconds() - since, &result);
  return result;
}

value napi_register_module_v1(void *env, value exports) {
  value made = NULL;
  napi_create_function(env, NULL, 0, all_reduce_floats, NULL, &made);
  return made ? made : exports;
}
