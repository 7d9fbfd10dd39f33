/* A real-time program: it locks its memory, touches all that it needs, frees it, and from then on
   allocates and frees in rounds without a page fault. */
#include "purge.h"
#include "locking.h"
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { ROUNDS = 3, SMALL = 60000, LARGE = 24, THRESHOLD = 16 * MIB };

static void *small[SMALL], *large[LARGE];

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt + usage.ru_majflt;
}

static void *touched(size_t bytes) {
    char *block = malloc(bytes);
    CHECK(block != NULL);
    for (size_t at = 0; at < bytes; at += 4096) block[at] = 1;
    return block;
}

/* Some 70 MiB, then free for longer than anything stays by itself. Returns the page faults of
   it. */
static long round_of(void) {
    long before = faults();
    for (int i = 0; i < SMALL; i++) small[i] = touched(16 + (size_t)i % 1024);
    for (int i = 0; i < LARGE; i++) large[i] = touched((size_t)(i % 3 + 1) * 700 * 1024);
    for (int i = 0; i < SMALL; i++) free(small[i]);
    for (int i = 0; i < LARGE; i++) free(large[i]);
    long during = faults() - before;
    nap(700);
    return during;
}

/* The faults of the best of some rounds after the first ones. The kernel makes a process fault
   where it moves pages, and code may be read in late. */
static long rounds(long enough) {
    long least = LONG_MAX;
    for (int i = 1; i < ROUNDS; i++) round_of();
    for (int i = 0; i < 5 && least > enough; i++) {
        long faults = round_of();
        least = faults < least ? faults : least;
    }
    return least;
}

static void lock_by(const char *way) {
    if (!may_lock(512 * MIB)) skip("locking 512 MiB (ulimit -l)");
    int flags = MCL_CURRENT | MCL_FUTURE;
    if (!strcmp(way, "on-fault")) flags |= MCL_ONFAULT;
    long answer = !strcmp(way, "raw") ? syscall(SYS_mlockall, flags) : mlockall(flags);
    if (answer != 0) skip("mlockall");
}

static void comes_down_to(size_t most) {
    for (int waited = 0; resident() > most; waited += 100) {
        CHECK(waited < PATIENCE_MS);
        nap(100);
        free(touched(MIB));
    }
}

/* Before Linux 5.18 no call discards a locked page. */
static int kernel_discards_locked(void) {
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    return madvise(page, 4096, 24 /* MADV_DONTNEED_LOCKED */) == 0;
}

/* Without privileges, and a limit that what is only reserved would pass. */
static int locks_within_its_limit(void) {
    free(touched(MIB / 4));
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (limit.rlim_max > 64 * MIB) limit.rlim_max = 64 * MIB;
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (limit.rlim_cur < 8 * MIB) skip("RLIMIT_MEMLOCK");
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) skip("setresuid");
    errno = 0;
    CHECK(mlockall(MCL_CURRENT) == 0);
    for (int i = 0; i < 64; i++) free(touched(MIB));
    for (int i = 0; i < 64; i++) touched(MIB);
    CHECK(mlockall(MCL_FUTURE) == 0 && munlockall() == 0);
    return 0;
}

/* Free pages that are locked are never due, so the thread has no reason to wake for them. */
static int sleeps_beside_locked_pages(void) {
    lock_by("all");
    round_of();
    CHECK(until(one_lives));
    /* Not before its rounds are over, which are late where the machine has much to do. */
    long woken = 0;
    for (int tries = 0; tries < 15; tries++) {
        long before = switches_so_far();
        nap(2000);
        woken = switches_so_far() - before;
        if (woken <= 20) return 0;
    }
    dprintf(2, "woken %ld times in 2 s\n", woken);
    return 0;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && served_by_neap("malloc"));
    if (!strcmp(argv[1], "limited")) return locks_within_its_limit();
    if (!strcmp(argv[1], "asleep")) return sleeps_beside_locked_pages();
    if (!strcmp(argv[1], "threshold")) {
        CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1);
        CHECK(rounds(15) < 16);
        size_t full = resident();
        CHECK(mallopt(M_TRIM_THRESHOLD, THRESHOLD) == 1);
        comes_down_to(full - 32 * MIB);
        nap(700);
        CHECK(resident() >= THRESHOLD);
        CHECK(malloc_trim(0) == 1 && resident() < THRESHOLD);
        return 0;
    }
    lock_by(argv[1]);
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1 && mallopt(M_MMAP_MAX, 0) == 1);
    /* Locked as they are touched, some pages of the library may be touched late. */
    long enough = strcmp(argv[1], "on-fault") ? 0 : 15;
    CHECK(rounds(enough) <= enough);
    if (!strcmp(argv[1], "raw")) return 0;
    /* A child's memory is not locked, and comes home again; so does this process's once it is
       unlocked. */
    CHECK(mallopt(M_TRIM_THRESHOLD, 0) == 1);
    size_t full = resident();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        round_of();
        comes_down_to(full - 32 * MIB);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    round_of();
    CHECK(resident() + 8 * MIB >= full);
    if (kernel_discards_locked()) CHECK(malloc_trim(0) == 1 && resident() < full - 32 * MIB);
    rounds(LONG_MAX);
    CHECK(munlockall() == 0);
    comes_down_to(full - 32 * MIB);
    return 0;
}
