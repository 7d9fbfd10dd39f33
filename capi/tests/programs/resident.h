/* How much of a process is resident, read without allocating. */
#ifndef RESIDENT_H
#define RESIDENT_H

#include "check.h"

/* Reads a file of /proc into `text`; its length, or -1. */
static inline ssize_t read_file(const char *path, char *text, size_t room) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t length = read(file, text, room - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    return length;
}

/* Resident bytes. smaps_rollup counts page tables' entries. statm sums counters of which each
   processor may hold back some: with Linux 6.2 to 6.15 up to 128 pages on each of 64 processors.
   Both can be read in a process that gave its privileges up. */
static inline size_t resident(void) {
    char text[2048];
    unsigned long all, here;
    if (read_file("/proc/self/smaps_rollup", text, sizeof text) > 0) {
        const char *line = strstr(text, "\nRss:");
        CHECK(line && sscanf(line, "\nRss: %lu kB", &here) == 1);
        return here << 10;
    }
    CHECK(read_file("/proc/self/statm", text, sizeof text) > 0);
    CHECK(sscanf(text, "%lu %lu", &all, &here) == 2);
    return here * (size_t)sysconf(_SC_PAGESIZE);
}

#endif
