// What SwiftShader's build for glibc calls and musl lacks. musl takes the library of this name for the linker of glibc, which
// drivers name among what they need.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int vasprintf(char **text, const char *format, va_list arguments);
int fcntl(int file, int command, ...);

void *__memcpy_chk(void *to, const void *from, size_t bytes, size_t room) {
  if (bytes > room) abort();
  return memcpy(to, from, bytes);
}

int __vasprintf_chk(char **text, int flag, const char *format, va_list arguments) {
  (void)flag;
  return vasprintf(text, format, arguments);
}

int __vfprintf_chk(FILE *file, int flag, const char *format, va_list arguments) {
  (void)flag;
  return vfprintf(file, format, arguments);
}

int __vsnprintf_chk(char *text, size_t bytes, int flag, size_t room, const char *format, va_list arguments) {
  (void)flag;
  if (bytes > room) abort();
  return vsnprintf(text, bytes, format, arguments);
}

int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void *value = va_arg(arguments, void *);
  va_end(arguments);
  return fcntl(file, command, value);
}
