/* Make system calls of a broker fail, be slow or return a wrong time. The orders are in a page of shared memory
 * (TIDELOG_SHIM_PAGE names its file). Without an order every call behaves as usual.
 *
 * The orders affect only segments and their indexes: files whose names begin with twenty digits and a dot. shim.py
 * names the fields of the page in the same order.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef _Atomic int64_t field;

static struct page {
    /* orders; 0: none */
    field write_errno, sync_errno, write_delay_us, sync_delay_us;
    field clock_offset_ns, clock_swing_ns, clock_period_ns;
    field tear_after; /* bytes + 1; negative: from the end */
    field hold_ms;
    /* what was done */
    field writes_failed, syncs_failed, writes_delayed, syncs_delayed, clocks_shifted, torn_bytes, holds;
} *page;

static struct page idle;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("TIDELOG_SHIM_PAGE");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    page = found == MAP_FAILED ? &idle : found;
    if (file >= 0) close(file);
}

static struct page *orders(void) { return page ? page : &idle; }

static void rest(int64_t microseconds) {
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

/* Return whether the file is a segment or (without `only_log`) one of its indexes. */
static int meant(int fd, int only_log) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    return strspn(name, "0123456789") == 20 && name[20] == '.' && (!only_log || !strcmp(name + 20, ".log"));
}

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

/* Write some of the bytes, and then end the process. */
static void tear(int fd, const struct iovec *parts, int count, off_t position, int64_t bytes) {
    int64_t left = bytes;
    if (!real_pwrite) real_pwrite = dlsym(RTLD_NEXT, "pwrite");
    if (position < 0) position = lseek(fd, 0, SEEK_CUR);
    for (int i = 0; i < count && left > 0; i++) {
        size_t some = (int64_t)parts[i].iov_len < left ? parts[i].iov_len : (size_t)left;
        position += real_pwrite(fd, parts[i].iov_base, some, position);
        left -= some;
    }
    orders()->torn_bytes = bytes - left + 1;
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Return whether the write fails, with errno set. */
static int judge_write(int fd, const struct iovec *parts, int count, off_t position) {
    struct page *told = orders();
    if (!told->write_errno && !told->write_delay_us && !told->tear_after) return 0;
    if (told->tear_after && meant(fd, 1)) {
        int64_t total = 0, told_after = told->tear_after;
        for (int i = 0; i < count; i++) total += parts[i].iov_len;
        int64_t after = told_after > 0 ? told_after - 1 : total + told_after;
        if (after >= 0 && after < total && atomic_exchange(&told->tear_after, 0)) tear(fd, parts, count, position, after);
    }
    if (!meant(fd, 0)) return 0;
    if (told->write_delay_us) {
        told->writes_delayed++;
        rest(told->write_delay_us);
    }
    if (told->write_errno) {
        told->writes_failed++;
        errno = (int)told->write_errno;
        return 1;
    }
    return 0;
}

static int judge_sync(int fd) {
    struct page *told = orders();
    if ((!told->sync_errno && !told->sync_delay_us) || !meant(fd, 0)) return 0;
    if (told->sync_delay_us) {
        told->syncs_delayed++;
        rest(told->sync_delay_us);
    }
    if (told->sync_errno) {
        told->syncs_failed++;
        errno = (int)told->sync_errno;
        return 1;
    }
    return 0;
}

#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

#define WRITE(name) \
    ssize_t name(int fd, const void *data, size_t size) { \
        REAL(name, ssize_t, int, const void *, size_t); \
        struct iovec part = {(void *)data, size}; \
        return judge_write(fd, &part, 1, -1) ? -1 : real(fd, data, size); \
    }
#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t position) { \
        REAL(name, ssize_t, int, const void *, size_t, off_t); \
        struct iovec part = {(void *)data, size}; \
        return judge_write(fd, &part, 1, position) ? -1 : real(fd, data, size, position); \
    }
#define PWRITEV(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t position) { \
        REAL(name, ssize_t, int, const struct iovec *, int, off_t); \
        return judge_write(fd, parts, count, position) ? -1 : real(fd, parts, count, position); \
    }
#define PWRITEV2(name) \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t position, int flags) { \
        REAL(name, ssize_t, int, const struct iovec *, int, off_t, int); \
        return judge_write(fd, parts, count, position) ? -1 : real(fd, parts, count, position, flags); \
    }
#define SYNC(name) \
    int name(int fd) { \
        REAL(name, int, int); \
        return judge_sync(fd) ? -1 : real(fd); \
    }

WRITE(write)
PWRITE(pwrite)
PWRITE(pwrite64)
PWRITEV(pwritev)
PWRITEV(pwritev64)
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)
SYNC(fsync)
SYNC(fdatasync)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev, ssize_t, int, const struct iovec *, int);
    return judge_write(fd, parts, count, -1) ? -1 : real(fd, parts, count);
}

/* A call that holds the interpreter's lock: Python asks for the time with it, libuv without. */
static void hold(struct page *told) {
    static int (*has_lock)(void);
    if (!has_lock) has_lock = dlsym(RTLD_DEFAULT, "PyGILState_Check");
    if (!has_lock || !has_lock()) return;
    int64_t milliseconds = atomic_exchange(&told->hold_ms, 0);
    if (!milliseconds) return;
    told->holds++;
    rest(milliseconds * 1000);
}

/* How far the wall clock is off, in nanoseconds: for ever by the offset, to and fro by the swing. */
static int64_t shift(struct page *told, int64_t monotonic_ns) {
    int64_t by = told->clock_offset_ns, swing = told->clock_swing_ns, period = told->clock_period_ns;
    if (swing && period) by += monotonic_ns / period % 2 ? swing : -swing;
    if (by) told->clocks_shifted++;
    return by;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime, int, clockid_t, struct timespec *);
    struct page *told = orders();
    if (told->hold_ms) hold(told);
    int failed = real(clock, now);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    if (told->clock_offset_ns || told->clock_swing_ns) {
        struct timespec steady;
        real(CLOCK_MONOTONIC, &steady);
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec;
        ns += shift(told, steady.tv_sec * 1000000000LL + steady.tv_nsec);
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (kept) *kept = precise.tv_sec;
    return precise.tv_sec;
}
