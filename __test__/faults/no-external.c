// Preloaded: Node-API as Electron has it, which refuses ArrayBuffers over native memory (its V8 has a memory cage). The addon looks up
// Node's functions by dlsym.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

typedef void *lookup(void *library, const char *name);

/* napi_no_external_buffers_allowed */
static int refuses(void) { return 22; }

void *dlsym(void *library, const char *name) {
  static lookup *next;
  if (next == NULL) {
#if defined(__x86_64__)
    const char *version = "GLIBC_2.2.5";
#else
    const char *version = "GLIBC_2.17";
#endif
    next = (lookup *)dlvsym(RTLD_NEXT, "dlsym", version);
  }
  if (strcmp(name, "napi_create_external_arraybuffer") == 0 || strcmp(name, "napi_create_external_buffer") == 0) return (void *)refuses;
  return next(library, name);
}
