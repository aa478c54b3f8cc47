// A Node-API module for tests of SIGINT during a wait. `raiseInWait(times)` starts a thread that waits until the addon has put its
// handler in front of the present one, and then raises the signal `times` times, each after the one before was handled.
// `raised()` returns how many such threads have finished.
// Declared here, so that it builds without Node's headers.

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef void *value;
typedef value (*function)(void *env, void *info);

extern int napi_create_function(void *env, const char *name, size_t length, function body, void *data, value *result);
extern int napi_create_uint32(void *env, uint32_t number, value *result);
extern int napi_get_cb_info(void *env, void *info, size_t *count, value *arguments, value *self, void **data);
extern int napi_get_value_uint32(void *env, value number, uint32_t *result);
extern int napi_set_named_property(void *env, value object, const char *name, value property);
extern int napi_throw_error(void *env, const char *code, const char *message);

struct order {
  void (*before)(int);
  uint32_t times;
};

static uint32_t done;

static void (*handler(void))(int) {
  struct sigaction now;
  if (sigaction(SIGINT, NULL, &now) != 0) abort();
  return now.sa_handler;
}

static void *raises(void *data) {
  struct order order = *(struct order *)data;
  free(data);
  const struct timespec turn = {.tv_nsec = 1000000};
  while (handler() == order.before) nanosleep(&turn, NULL);
  // On this thread, so that each call returns after the handler has.
  for (uint32_t i = 0; i < order.times; i++) raise(SIGINT);
  __atomic_add_fetch(&done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static value raise_in_wait(void *env, void *info) {
  size_t count = 1;
  value argument = NULL;
  uint32_t times = 0;
  napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
  struct order *order = malloc(sizeof *order);
  pthread_t thread;
  if (!order || napi_get_value_uint32(env, argument, &times) != 0) {
    free(order);
    napi_throw_error(env, NULL, "raiseInWait takes how many times");
    return NULL;
  }
  order->before = handler();
  order->times = times;
  if (pthread_create(&thread, NULL, raises, order) == 0) {
    pthread_detach(thread);
  } else {
    free(order);
    napi_throw_error(env, NULL, "no thread");
  }
  return NULL;
}

static value raised(void *env, void *info) {
  value result = NULL;
  napi_create_uint32(env, __atomic_load_n(&done, __ATOMIC_ACQUIRE), &result);
  return result;
}

static void add(void *env, value exports, const char *name, function body) {
  value made = NULL;
  if (napi_create_function(env, NULL, 0, body, NULL, &made) == 0) napi_set_named_property(env, exports, name, made);
}

value napi_register_module_v1(void *env, value exports) {
  add(env, exports, "raiseInWait", raise_in_wait);
  add(env, exports, "raised", raised);
  return exports;
}
