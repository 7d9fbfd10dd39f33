/* Descriptors of a pagemap: finding the library's, and asking one which pages are populated.
   No function here allocates, so that each may run in a child of any kind. */
#ifndef DESCRIPTORS_H
#define DESCRIPTORS_H

#include "check.h"
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { MOST_DESCRIPTORS = 16, FURTHEST_NUMBER = 1 << 20 };

/* The file system of /proc, learned while it can be seen: a pagemap is known by it afterwards. */
static dev_t proc_device;

static inline void learn_proc(void) {
    struct stat about;
    if (stat("/proc/self/pagemap", &about) == 0) proc_device = about.st_dev;
}

static inline int is_link_to_pagemap(const char *name) {
    char link[64], target[64];
    snprintf(link, sizeof link, "/proc/self/fd/%s", name);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0) return 0;
    target[length] = 0;
    const char *last = strrchr(target, '/');
    return last != NULL && !strcmp(last, "/pagemap");
}

struct directory_entry {
    uint64_t inode;
    int64_t next;
    unsigned short length;
    unsigned char kind;
    char name[];
};

/* From the links in /proc/self/fd; -1 where they cannot be listed. */
static inline int pagemaps_listed(int *numbers) {
    _Alignas(8) char buffer[4096];
    int found = 0;
    long length;
    int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list < 0) return -1;
    while ((length = syscall(SYS_getdents64, list, buffer, sizeof buffer)) > 0)
        for (long at = 0; at < length;) {
            const struct directory_entry *entry = (const void *)(buffer + at);
            if (found < MOST_DESCRIPTORS && is_link_to_pagemap(entry->name))
                numbers[found++] = atoi(entry->name);
            at += entry->length;
        }
    close(list);
    return found;
}

/* By trying every number: a file of /proc that only its owner may read. */
static inline int pagemaps_tried(int *numbers) {
    struct rlimit limit;
    struct stat about;
    int found = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max > FURTHEST_NUMBER)
        limit.rlim_max = FURTHEST_NUMBER;
    for (int number = 3; number < (int)limit.rlim_max && found < MOST_DESCRIPTORS; number++)
        if (fcntl(number, F_GETFD) >= 0 && fstat(number, &about) == 0 &&
            about.st_dev == proc_device && about.st_mode == (S_IFREG | S_IRUSR))
            numbers[found++] = number;
    return found;
}

/* The numbers of all pagemaps that this process has open. */
static inline int open_pagemaps(int numbers[MOST_DESCRIPTORS]) {
    int found = pagemaps_listed(numbers);
    return found >= 0 ? found : pagemaps_tried(numbers);
}

/* As in <linux/fs.h> since Linux 6.7. */
struct scanned_region {
    uint64_t start, end, categories;
};

struct scan_request {
    uint64_t size, flags, start, end, walk_end, regions, regions_length, most_pages;
    uint64_t inverted, all_of, any_of, reported;
};

enum { SCAN_PRESENT = 1 << 3, SCAN_SWAPPED = 1 << 4 };
#define SCAN _IOWR('f', 16, struct scan_request)

/* Pages of [block, block + bytes) that are present or swapped out, by PAGEMAP_SCAN. */
static inline long populated_by_scan(int pagemap, const void *block, size_t bytes) {
    struct scanned_region regions[64];
    uint64_t end = (uintptr_t)block + bytes;
    struct scan_request request = {
        .size = sizeof request,
        .start = (uintptr_t)block & -4096ul,
        .end = end,
        .regions = (uintptr_t)regions,
        .regions_length = 64,
        .any_of = SCAN_PRESENT | SCAN_SWAPPED,
        .reported = SCAN_PRESENT | SCAN_SWAPPED,
    };
    long pages = 0;
    while (request.start < end) {
        long count = ioctl(pagemap, SCAN, &request);
        if (count < 0) return -1;
        for (long i = 0; i < count; i++) pages += (regions[i].end - regions[i].start) / 4096;
        request.start = request.walk_end;
    }
    return pages;
}

/* The same from the entries of the file, for kernels before 6.7. */
static inline long populated_by_entries(int pagemap, const void *block, size_t bytes) {
    uint64_t entries[512];
    uint64_t page = (uintptr_t)block / 4096, end = ((uintptr_t)block + bytes + 4095) / 4096;
    long pages = 0;
    while (page < end) {
        size_t wanted = end - page < 512 ? end - page : 512;
        ssize_t got = pread(pagemap, entries, wanted * 8, (off_t)(page * 8));
        if (got != (ssize_t)wanted * 8) return -1;
        for (size_t i = 0; i < wanted; i++) pages += entries[i] >> 62 != 0;
        page += wanted;
    }
    return pages;
}

/* How many pages of the block the descriptor calls populated; -1 if it does not answer. */
static inline long populated(int pagemap, const void *block, size_t bytes) {
    long pages = populated_by_scan(pagemap, block, bytes);
    return pages >= 0 ? pages : populated_by_entries(pagemap, block, bytes);
}

#endif
