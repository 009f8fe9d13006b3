/* Preloaded into a program: its wall clock goes wrong by the seconds (a double) at the start of $CLOCK_OFFSET. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const double *offset;

__attribute__((constructor)) static void open_offset(void) {
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY);
    void *page = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || page == MAP_FAILED) _exit(127);
    close(file);
    offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && offset) now->tv_sec += (time_t)*offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
