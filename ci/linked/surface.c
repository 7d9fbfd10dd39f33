/* Uses malloc as programs do: by itself, by the C library, by threads that end, around fork.
 * Without an argument it checks that all of this works; with one it makes the mistake of that
 * name. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <neap.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "not so: %s\n", what);
    _exit(1);
}

static void sizes(void) {
    for (size_t bytes = 0; bytes < 300000; bytes += bytes / 3 + 1) {
        char *block = malloc(bytes);
        check(block && malloc_usable_size(block) >= bytes, "a block has its size");
        check((uintptr_t)block % 16 == 0, "a block is aligned");
        memset(block, 'x', bytes);
        block = realloc(block, 2 * bytes + 1);
        check(block && (bytes == 0 || block[bytes - 1] == 'x'), "realloc keeps the contents");
        free_sized(block, 2 * bytes + 1);
        char *zeros = calloc(bytes + 1, 3);
        check(zeros && zeros[0] == 0 && zeros[3 * bytes] == 0, "calloc gives zeros");
        free(zeros);
        void *aligned = NULL;
        check(posix_memalign(&aligned, 4096, bytes) == 0, "posix_memalign");
        check((uintptr_t)aligned % 4096 == 0, "posix_memalign aligns");
        free(aligned);
    }
    volatile size_t enormous = SIZE_MAX / 4;
    errno = 0;
    check(!malloc(enormous) && errno == ENOMEM, "out of memory");
}

/* Blocks of the C library's. */
static void by_the_c_library(void) {
    char *copy = strdup("a string"), *text = NULL, *line = NULL;
    size_t room = 0;
    check(copy && malloc_usable_size(copy) >= 9, "strdup's block is of this heap");
    free_sized(copy, 9);
    check(asprintf(&text, "%0999d", 1) == 999, "asprintf");
    free(text);
    FILE *file = fopen("/proc/self/status", "r");
    check(file && getline(&line, &room, file) > 0 && malloc_usable_size(line) >= room, "getline");
    free(line);
    fclose(file);
}

/* Names that the archive defines as well: they call the kernel if there is no other. */
static void system_calls(void) {
    struct rlimit limit;
    errno = 0;
    check(ioctl(-1, 0, 0) == -1 && errno == EBADF, "ioctl fails with its errno");
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(page != MAP_FAILED, "mmap");
    page = mremap(page, 4096, 8192, MREMAP_MAYMOVE);
    check(page != MAP_FAILED && munmap(page, 8192) == 0, "mremap");
    errno = 0;
    check(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED && errno, "mmap refuses");
    check(syscall(SYS_getpid) == getpid(), "syscall");
    check(getrlimit(RLIMIT_CORE, &limit) == 0 && setrlimit(RLIMIT_CORE, &limit) == 0, "setrlimit");
}

static void stacks(void) {
    neap_stack_t stack;
    check(neap_stack_alloc(64 << 10, &stack) == 0, "a stack");
    memset(stack.limit, 1, stack.bytes);
    neap_stack_free(&stack);
}

static atomic_int stop;

static void *churn(void *unused) {
    while (!stop) {
        void *blocks[50];
        for (int i = 0; i < 50; i++) blocks[i] = malloc((size_t)i * i);
        for (int i = 0; i < 50; i++) free(blocks[i]);
    }
    return unused;
}

static void *short_life(void *block) {
    free(block);
    void *kept = malloc(100);
    for (size_t bytes = 16; bytes < 2000; bytes += 16) free(malloc(bytes));
    return kept;
}

static long peak_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* A thread's cache is taken back when it ends: otherwise each would leave some 20 KiB. */
static void threads_that_end(void) {
    void *block = malloc(10);
    long before = 0;
    for (int i = 0; i < 3000; i++) {
        pthread_t thread;
        check(pthread_create(&thread, NULL, short_life, block) == 0, "a thread starts");
        check(pthread_join(thread, &block) == 0 && block, "a thread ends");
        if (i == 100) before = peak_kib();
    }
    free(block);
    check(peak_kib() - before < 8 << 10, "3,000 threads leave nothing");
}

static int handled;
static void in_child(void) {
    free(malloc(100));
    handled++;
}

/* Forks while other threads are in malloc; each child allocates, and forks again. */
static void forks(void) {
    pthread_t threads[2];
    check(pthread_atfork(NULL, NULL, in_child) == 0, "pthread_atfork");
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, churn, NULL);
    for (int i = 0; i < 100; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            check(handled == 1, "the handler ran");
            for (size_t bytes = 1; bytes < 100000; bytes *= 2) free(malloc(bytes));
            pid_t grandchild = fork();
            if (grandchild == 0) _exit(handled == 2 && strdup("alive") ? 7 : 1);
            int status;
            check(waitpid(grandchild, &status, 0) == grandchild, "a child waits");
            exit(WEXITSTATUS(status));
        }
        int status;
        check(child > 0 && waitpid(child, &status, 0) == child, "fork");
        check(WIFEXITED(status) && WEXITSTATUS(status) == 7, "a child allocates");
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static long resident_kib(void) {
    long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    check(file && fscanf(file, "%ld %ld", &all, &resident) == 2, "statm");
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A process that sleeps returns what it has freed. */
static int idle(void) {
    enum { BLOCKS = 40000 };
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    check(resident_kib() > 30000, "it was large");
    for (int seconds = 0; seconds < 60; seconds++) {
        sleep(1);
        if (resident_kib() < 10000) return 0;
    }
    check(0, "the purge thread returns what was freed");
    return 1;
}

/* The purge thread by a call, in the process and in a child of it. */
static int started(void) {
    pid_t child;
    int status;
    check(neap_start_purge_thread() == 0, "the thread starts");
    check(neap_start_purge_thread() == 0, "it is there");
    if ((child = fork()) == 0) {
        check(neap_start_purge_thread() == 0, "it starts in a child");
        _exit(idle());
    }
    check(idle() == 0, "it works");
    check(waitpid(child, &status, 0) == child && status == 0, "it works in a child");
    return 0;
}

static int misuse(const char *kind) {
    static char own[100];
    char *block = malloc(40);
    if (strcmp(kind, "double-free") == 0) {
        free(block);
        free(block);
    } else if (strcmp(kind, "foreign-free") == 0) {
        void *volatile foreign = own + 16;
        free(foreign);
    } else if (strcmp(kind, "freed") == 0) {
        free(block);
        ((volatile char *)block)[3];
    } else if (strcmp(kind, "wrong-size") == 0) {
        free_sized(block, 4000);
    } else if (strcmp(kind, "overflow") == 0) {
        // A static program's first slabs have no canaries, because the C library allocates before
        // the options are read.
        block = realloc(calloc(0, 1), 100);
        memset(block, 1, 100);
        for (int i = 0; i < 50000; i++) block = malloc(40);
        // The canary is random: one in 256 has any given byte there.
        ((volatile char *)block)[40] ^= 1;
        free(block);
    }
    return 9;
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "idle") == 0) return idle();
    if (count > 1 && strcmp(words[1], "started") == 0) return started();
    if (count > 1) return misuse(words[1]);
    sizes();
    by_the_c_library();
    system_calls();
    stacks();
    threads_that_end();
    forks();
    malloc_trim(0);
    printf("Neap %s\n", neap_version());
    return 0;
}
