// Makes calls of the C library fail, for files below a folder: LD_PRELOAD this with
//
//   HELIOS_IO_FOLDER=/absolute/folder HELIOS_IO_FAULT=CALL:NTH:HOW
//
// CALL is write, sync, rename or open; the NTH (from 1) and all later ones of that folder fail. HOW is ENOSPC, EIO or, of
// writes, short (every one writes a single byte, and reports so) and nothing (the NTH writes and reports no byte). The
// number of the folder's calls goes into the file HELIOS_IO_COUNT at the end.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, SYNC, RENAME, OPEN, CALLS };
static const char *const NAMES[CALLS] = {"write", "sync", "rename", "open"};
static atomic_long counts[CALLS];

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int below(const char *path) {
  const char *folder = getenv("HELIOS_IO_FOLDER");
  return folder && path && !strncmp(path, folder, strlen(folder));
}

static int watched(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return below(path);
}

// What shall happen to this call: null for nothing.
static const char *fault(int call) {
  long count = ++counts[call];
  const char *text = getenv("HELIOS_IO_FAULT");
  if (!text) return NULL;
  size_t length = strlen(NAMES[call]);
  if (strncmp(text, NAMES[call], length) || text[length] != ':') return NULL;
  char *how;
  long nth = strtol(text + length + 1, &how, 10);
  return count >= nth && *how == ':' ? how + 1 : NULL;
}

static int error(const char *how) {
  errno = !strcmp(how, "ENOSPC") ? ENOSPC : EIO;
  return -1;
}

#define WRITING(size, real, one)                                                                                       \
  const char *how = watched(fd) ? fault(WRITE) : NULL;                                                                 \
  if (!how) return real;                                                                                               \
  if (!strcmp(how, "nothing")) return 0;                                                                               \
  if (strcmp(how, "short")) return error(how);                                                                         \
  return (size) == 0 ? 0 : one;

ssize_t write(int fd, const void *data, size_t size) {
  WRITING(size, REAL(write)(fd, data, size), REAL(write)(fd, data, 1))
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  WRITING(size, REAL(pwrite64)(fd, data, size, at), REAL(pwrite64)(fd, data, 1, at))
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  WRITING(size, REAL(pwrite)(fd, data, size, at), REAL(pwrite)(fd, data, 1, at))
}
ssize_t writev(int fd, const struct iovec *list, int count) {
  WRITING(count, REAL(writev)(fd, list, count), REAL(write)(fd, list[0].iov_base, list[0].iov_len > 0))
}

int fsync(int fd) {
  const char *how = watched(fd) ? fault(SYNC) : NULL;
  return how ? error(how) : REAL(fsync)(fd);
}
int fdatasync(int fd) {
  const char *how = watched(fd) ? fault(SYNC) : NULL;
  return how ? error(how) : REAL(fdatasync)(fd);
}
int rename(const char *from, const char *to) {
  const char *how = below(from) ? fault(RENAME) : NULL;
  return how ? error(how) : REAL(rename)(from, to);
}

#define OPENING                                                                                                        \
  va_list more;                                                                                                        \
  va_start(more, flags);                                                                                               \
  mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;                                            \
  va_end(more);                                                                                                        \
  const char *how = (flags & O_CREAT) && below(path) ? fault(OPEN) : NULL;                                             \
  if (how) return error(how);

int open(const char *path, int flags, ...) {
  OPENING
  return REAL(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  OPENING
  return REAL(open64)(path, flags, mode);
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("HELIOS_IO_COUNT");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  for (int call = 0; call < CALLS; call++) fprintf(file, "%s %ld\n", NAMES[call], (long)counts[call]);
  fclose(file);
}
