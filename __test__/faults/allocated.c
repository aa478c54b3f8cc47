// A Node-API module that is a function: returns the bytes that malloc has allocated, in all arenas. It first returns
// pages without allocations to the system, so that resident memory shows what is held, not
// what an arena once needed.
// Declared here, so that it builds without Node's headers.

#include <malloc.h>
#include <stddef.h>

typedef void *value;

extern int napi_create_double(void *env, double number, value *result);
extern int napi_create_function(void *env, const char *name, size_t length, value (*body)(void *, void *), void *data, value *result);

static value allocated(void *env, void *info) {
  malloc_trim(0);
  struct mallinfo2 counts = mallinfo2();
  value result = NULL;
  napi_create_double(env, (double)(counts.uordblks + counts.hblkhd), &result);
  return result;
}

value napi_register_module_v1(void *env, value exports) {
  value function = NULL;
  napi_create_function(env, NULL, 0, allocated, NULL, &function);
  return function ? function : exports;
}
