// What SwiftShader's build for glibc calls and musl lacks. musl takes the library of this name for the linker of glibc, which
// drivers name among what they need.

#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

// What its build for arm64 calls besides: there it compiles by LLVM.

ssize_t __read_chk(int file, void *to, size_t bytes, size_t room) {
  if (bytes > room) abort();
  return read(file, to, bytes);
}

ssize_t __readlink_chk(const char *path, char *to, size_t bytes, size_t room) {
  if (bytes > room) abort();
  return readlink(path, to, bytes);
}

char *__realpath_chk(const char *path, char *to, size_t room) {
  if (to && room < PATH_MAX) abort();
  return realpath(path, to);
}

int __open64_2(const char *path, int flags) { return open(path, flags); }

int __sched_cpucount(size_t bytes, const cpu_set_t *set) {
  int count = 0;
  for (size_t i = 0; i < bytes; i++) count += __builtin_popcount(((const unsigned char *)set)[i]);
  return count;
}

int __isoc23_sscanf(const char *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int read = vsscanf(text, format, arguments);
  va_end(arguments);
  return read;
}

long __isoc23_strtol(const char *text, char **end, int base) { return strtol(text, end, base); }
unsigned long __isoc23_strtoul(const char *text, char **end, int base) { return strtoul(text, end, base); }
unsigned long long __isoc23_strtoull(const char *text, char **end, int base) { return strtoull(text, end, base); }

// How many bytes the heap has: LLVM asks for its statistics alone. glibc's structure is of ten numbers.
struct mallinfo {
  int numbers[10];
};
struct mallinfo mallinfo(void) { return (struct mallinfo){{0}}; }
