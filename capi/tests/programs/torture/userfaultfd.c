/* A block's pages under userfaultfd, then freed, then given by calloc: zero.
   The argument: missing (a thread serves faults with pages that are not zero), protected
   (write-protected pages, and markers where there is no page), or kept (as missing, but the
   block is freed while registered). Exit 77 where the kernel refuses. */
#include "check.h"
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif

enum { SIZE = 4 << 20, TURNS = 4, SKIPPED = 77 };

static int faults;
static _Alignas(4096) char served_page[4096];

__attribute__((noreturn)) static void skip(const char *why) {
    dprintf(1, "SKIPPED: %s: %s\n", why, strerror(errno));
    _exit(SKIPPED);
}

static void open_faults(uint64_t features) {
    struct uffdio_api api = {.api = UFFD_API, .features = features};
    faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (faults < 0) skip("userfaultfd");
    if (ioctl(faults, UFFDIO_API, &api) != 0) skip("UFFDIO_API");
}

/* Serves every missing page with bytes that are not zero, until the program ends. */
static void *serve(void *unused) {
    struct uffd_msg message;
    while (read(faults, &message, sizeof message) == sizeof message) {
        if (message.event != UFFD_EVENT_PAGEFAULT) continue;
        struct uffdio_copy copy = {
            .dst = message.arg.pagefault.address & -4096ul,
            .src = (uintptr_t)served_page,
            .len = 4096,
        };
        ioctl(faults, UFFDIO_COPY, &copy);
    }
    return unused;
}

/* The block's own pages, registered. */
static struct uffdio_range registered(char *block, uint64_t mode) {
    uintptr_t low = ((uintptr_t)block + 4095) & -4096ul, high = ((uintptr_t)block + SIZE) & -4096ul;
    struct uffdio_register request = {.range = {low, high - low}, .mode = mode};
    /* As an int, which the kernel takes as well, for it looks at 32 bits. */
    if (ioctl(faults, (int)UFFDIO_REGISTER, &request) != 0) skip("UFFDIO_REGISTER");
    return request.range;
}

static void *pages(struct uffdio_range range) {
    return (void *)(uintptr_t)range.start;
}

static char *dirty_block(void) {
    char *block = malloc(hidden(SIZE));
    CHECK(block != NULL);
    memset(block, 0xa5, SIZE);
    return block;
}

static void calloc_is_zero(void) {
    char *block = calloc(1, hidden(SIZE));
    CHECK(block != NULL);
    for (size_t i = 0; i < SIZE; i++) CHECK(block[i] == 0);
    memset(block, 0x5a, SIZE);
    free(block);
}

static void freed(char *block, struct uffdio_range range, int stays) {
    if (!stays) CHECK(ioctl(faults, UFFDIO_UNREGISTER, &range) == 0);
    free(block);
    calloc_is_zero();
}

static void start_server(void) {
    pthread_t server;
    open_faults(0);
    memset(served_page, 0x77, sizeof served_page);
    CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
}

static void missing(int stays) {
    char *block = dirty_block();
    struct uffdio_range range = registered(block, UFFDIO_REGISTER_MODE_MISSING);
    /* The first half is gone; a quarter comes back from the server. */
    CHECK(madvise(pages(range), SIZE / 2, MADV_DONTNEED) == 0);
    char *first = pages(range);
    for (size_t at = 0; at < SIZE / 4; at += 4096) CHECK(first[at] == 0x77);
    freed(block, range, stays);
}

static void protected_pages(void) {
    char *block = dirty_block();
    struct uffdio_range range = registered(block, UFFDIO_REGISTER_MODE_WP);
    CHECK(madvise(pages(range), SIZE / 2, MADV_DONTNEED) == 0);
    struct uffdio_writeprotect all = {.range = range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
    CHECK(ioctl(faults, UFFDIO_WRITEPROTECT, &all) == 0);
    freed(block, range, 0);
}

int main(int count, char **arguments) {
    const char *kind = count == 2 ? arguments[1] : "";
    CHECK(served_by_neap("malloc"));
    alarm(120); /* a fault that no thread serves ends as SIGALRM */
    if (!strcmp(kind, "protected")) {
        open_faults(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_UNPOPULATED);
        for (int i = 0; i < TURNS; i++) protected_pages();
    } else if (!strcmp(kind, "missing")) {
        start_server();
        for (int i = 0; i < TURNS; i++) missing(0);
    } else {
        CHECK(!strcmp(kind, "kept"));
        start_server();
        missing(1);
    }
    return 0;
}
