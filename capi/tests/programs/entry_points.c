/* Every entry point, each in a process of its own: how much stack it takes, and that it is no
 * cancellation point.
 *
 *   entry_points MOST           all on a painted stack; fails if one takes more than MOST bytes
 *   entry_points cancel         all in a thread to be cancelled; fails if one ends the thread
 *   entry_points HOW =NAME      one, in this process
 *
 * One line an entry on standard output: bytes of stack, name. Linked with `-z now`, so that the
 * loader resolves no name on a painted stack. */
#include "check.h"
#include "../../include/neap.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { STACK_BYTES = 256 << 10, PAINT = 0xA5, MANY = 40000 };
#define MIB (1ul << 20)

static unsigned char *stack;

/* Calls `work` with the stack pointer at `top`. */
static void call_on(void *top, void (*work)(void)) {
#if defined(__x86_64__)
    __asm__ volatile("movq %%rsp, %%rbx\n\tmovq %0, %%rsp\n\tcall *%1\n\tmovq %%rbx, %%rsp"
                     :
                     : "r"(top), "r"(work)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1",
                       "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory");
#elif defined(__aarch64__)
    __asm__ volatile("mov x19, sp\n\tmov sp, %0\n\tblr %1\n\tmov sp, x19"
                     :
                     : "r"(top), "r"(work)
                     : "x19", "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12",
                       "x13", "x14", "x15", "x16", "x17", "x30", "cc", "memory");
#else
#error "no way to switch stacks is known for this machine"
#endif
}

static size_t used_bytes(void) {
    size_t at = 0;
    while (at < STACK_BYTES && stack[at] == PAINT)
        at++;
    return STACK_BYTES - at;
}

/* The blocks that an entry works on. */
static void *blocks[MANY];
static void *block;
static size_t size;
static pthread_barrier_t meeting;

static void nothing(void) {}

static void fill(size_t bytes) {
    for (int i = 0; i < MANY; i++)
        CHECK((blocks[i] = malloc(bytes)) != NULL);
}

/* Orders the blocks so that neighbours in it are in slabs far apart. */
static void scatter(void) {
    for (int i = 0; i < MANY; i++) {
        int other = (int)((unsigned)i * 7919u % MANY);
        void *kept = blocks[i];
        blocks[i] = blocks[other];
        blocks[other] = kept;
    }
}

static void free_all(void) {
    for (int i = 0; i < MANY; i++)
        free(blocks[i]);
}

/* What is freed before a slab's pages may be given back by who comes by. */
static void age(void) {
    struct timespec pause = {1, 200000000};
    nanosleep(&pause, NULL);
}

static void small(void) { block = malloc(hidden(100)); }
static void small_and_free(void) { free(malloc(hidden(100))); }
static void first_calloc(void) { block = calloc(1, hidden(100)); }
static void first_large(void) { block = malloc(hidden(MIB)); }
static void first_aligned(void) { block = aligned_alloc(4096, hidden(4096)); }
static void first_realloc(void) { block = realloc(NULL, hidden(100)); }
static void one_block(void) { block = malloc(hidden(100)); }
static void free_block(void) { free(block); }
static void many_small(void) { fill(64); }
static void many_middle(void) { fill(1500); }
static void fill_small(void) { fill(64); }
static void fill_small_scattered(void) { fill(64), scatter(); }
static void fill_middle_scattered(void) { fill(1500), scatter(); }

static void all_sizes(void) {
    static const size_t sizes[] = {0, 8, 24, 100, 200, 700, 1000, 1100, 3000, 5000, 9000, 20000, 32768};
    for (int round = 0; round < 300; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            blocks[(size_t)round * 13 + i] = malloc(sizes[i] + hidden(0));
    for (int i = 0; i < 300 * 13; i++)
        free(blocks[i]);
}

static void large(void) {
    for (size_t bytes = 33 << 10; bytes < 64 * MIB; bytes *= 2) {
        char *made = malloc(bytes);
        CHECK(made != NULL);
        made[0] = 1;
        free(made);
    }
}

static void dirty(void) {
    size = 8 * MIB;
    block = malloc(size);
    memset(block, 1, size);
    free(block);
}

static void zeros(void) {
    for (int round = 0; round < 5; round++) {
        char *made = calloc(1, hidden(8 * MIB));
        CHECK(made != NULL && made[5 * MIB] == 0);
        for (size_t at = 0; at < 8 * MIB; at += 3 * 4096)
            made[at] = 1;
        free(made);
        free(calloc(100, 300));
        free(calloc(2, 9000));
    }
}

static void resizes(void) {
    char *at = NULL;
    for (size_t bytes = 1; bytes < 32 * MIB; bytes = bytes * 3 / 2 + 1) {
        CHECK((at = realloc(at, bytes)) != NULL);
        at[bytes - 1] = 1;
        if (bytes > MIB && block == NULL)
            block = malloc(bytes);
    }
    for (size_t bytes = 32 * MIB; bytes > 1; bytes = bytes * 2 / 3)
        CHECK((at = realloc(at, bytes)) != NULL);
    CHECK(realloc(at, 0) == NULL);
    CHECK((at = reallocarray(NULL, 10, 10)) != NULL);
    free(at);
    free(block);
}

static void aligned(void) {
    for (size_t align = 8; align <= 4 * MIB; align *= 2) {
        void *made = NULL;
        free(aligned_alloc(align, hidden(3 * align)));
        free(memalign(align, hidden(100)));
        CHECK(posix_memalign(&made, align, hidden(100)) == 0);
        free(made);
    }
    free(valloc(100));
    free(pvalloc(100));
}

static void refused(void) {
    CHECK(malloc(hidden((size_t)1 << 62)) == NULL);
    CHECK(malloc(hidden((size_t)1 << 45)) == NULL);
    CHECK(calloc(hidden((size_t)1 << 33), (size_t)1 << 33) == NULL);
    CHECK(realloc(block, hidden((size_t)1 << 45)) == NULL);
}

/* Threads that hold magazines, to be drained. */
static void *holder(void *unused) {
    void *own[500];
    for (int i = 0; i < 500; i++)
        own[i] = malloc(200);
    for (int i = 0; i < 500; i++)
        free(own[i]);
    pthread_barrier_wait(&meeting);
    pthread_barrier_wait(&meeting);
    return unused;
}

static void start_holders(void) {
    pthread_t thread;
    pthread_barrier_init(&meeting, NULL, 4);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&thread, NULL, holder, NULL) == 0);
    pthread_barrier_wait(&meeting);
}

static void to_trim(void) {
    start_holders();
    fill(700), scatter();
    for (int i = 0; i < MANY; i += 2)
        free(blocks[i]), blocks[i] = NULL;
    dirty();
}

static void trim(void) { malloc_trim(0); }
static void info(void) { size = mallinfo2().uordblks + (size_t)mallinfo().uordblks; }
static void options(void) { size = (size_t)mallopt(M_TRIM_THRESHOLD, 1000); }

static FILE *sink;
static void open_sink(void) {
    to_trim();
    CHECK((sink = fopen("/dev/null", "w")) != NULL);
    setvbuf(sink, malloc(4096), _IOFBF, 4096);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(dup2(null, 2) == 2);
    /* The C library's own first use. */
    fputs("first\n", sink);
    fflush(sink);
}
static void to_stderr(void) { malloc_stats(); }
static void to_stream(void) { malloc_info(0, sink); }

static void sizes_of(void) {
    size = malloc_usable_size(block) + malloc_usable_size(NULL);
    free_sized(block, 100);
    free_aligned_sized(aligned_alloc(64, 64), 64, 64);
    free_sized(malloc(hidden(MIB)), MIB);
}

static void *(*operator_new)(size_t), *(*operator_new_aligned)(size_t, size_t);
static void (*operator_delete)(void *), (*operator_delete_sized)(void *, size_t);
static void find_operators(void) {
    operator_new = dlsym(RTLD_DEFAULT, "_Znwm");
    operator_new_aligned = dlsym(RTLD_DEFAULT, "_ZnwmSt11align_val_t");
    operator_delete = dlsym(RTLD_DEFAULT, "_ZdlPv");
    operator_delete_sized = dlsym(RTLD_DEFAULT, "_ZdlPvm");
    CHECK(operator_new && operator_new_aligned && operator_delete && operator_delete_sized);
}
static void operators(void) {
    for (int i = 0; i < 5000; i++)
        blocks[i] = i % 3 ? operator_new(hidden(100)) : operator_new_aligned(hidden(100), 256);
    for (int i = 0; i < 5000; i++)
        if (i % 3)
            operator_delete_sized(blocks[i], 100);
        else
            operator_delete(blocks[i]);
    operator_delete(operator_new(hidden(MIB)));
}

static void stacks(void) {
    static neap_stack_t made[300];
    for (int i = 0; i < 300; i++) {
        CHECK(neap_stack_alloc(i % 2 ? 8 << 10 : 256 << 10, &made[i]) == 0);
        neap_stack_set_owner(&made[i], "painted");
        memset(made[i].limit, 1, made[i].bytes);
        neap_stack_trim(&made[i], made[i].top);
    }
    for (int i = 0; i < 300; i++)
        neap_stack_free(&made[i]);
    neap_stack_report_overflows();
}

/* Rounds of decay by who comes by, where there is no thread for them. */
static void to_decay(void) {
    start_holders();
    fill(1500), scatter();
    for (int i = 0; i < MANY; i += 2)
        free(blocks[i]), blocks[i] = NULL;
    dirty();
    age();
}
static void decay(void) {
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < MANY; i += 2)
            blocks[i] = malloc(1500);
        for (int i = 0; i < MANY; i += 2)
            free(blocks[i]);
    }
}

static void much_freed(void) {
    for (int round = 0; round < 3; round++) {
        fill(1500);
        free_all();
    }
}

static void leave(void) { _exit(0); }

/* Where the entry runs: in the first thread, as a thread's first call, in a child that it ends. */
enum when { LATER, FIRST, LAST };

static const struct entry {
    const char *name;
    void (*before)(void);
    void (*entry)(void);
    enum when when;
    const char *variable;
} entries[] = {
    {"nothing", nothing, nothing, LATER, NULL},
    {"malloc, first of a thread", nothing, small, FIRST, NULL},
    {"malloc and free, first of a thread", nothing, small_and_free, FIRST, NULL},
    {"calloc, first of a thread", nothing, first_calloc, FIRST, NULL},
    {"malloc of 1 MiB, first of a thread", nothing, first_large, FIRST, NULL},
    {"aligned_alloc, first of a thread", nothing, first_aligned, FIRST, NULL},
    {"realloc, first of a thread", nothing, first_realloc, FIRST, NULL},
    {"free, first of a thread", one_block, free_block, FIRST, NULL},
    {"malloc, first of a thread, counting", nothing, small, FIRST, "NEAP_COUNT=1"},
    {"malloc, first of a thread, sampling", nothing, small, FIRST, "NEAP_SAMPLE=4K"},
    {"malloc, many of 64 bytes", nothing, many_small, LATER, NULL},
    {"malloc, many of 1500 bytes", nothing, many_middle, LATER, NULL},
    {"malloc and free, all classes", nothing, all_sizes, LATER, NULL},
    {"free, many of 64 bytes in order", fill_small, free_all, LATER, NULL},
    {"free, many of 64 bytes scattered", fill_small_scattered, free_all, LATER, NULL},
    {"free, many of 1500 bytes scattered", fill_middle_scattered, free_all, LATER, NULL},
    {"free, many of another thread", fill_small_scattered, free_all, FIRST, NULL},
    {"malloc and free, all classes, checking", nothing, all_sizes, LATER, "NEAP_CHECK=1"},
    {"malloc and free, all classes, counting", nothing, all_sizes, LATER, "NEAP_COUNT=1"},
    /* It walks the stack. */
    {"malloc and free, all classes, sampling", nothing, all_sizes, LATER, "NEAP_SAMPLE=4K"},
    {"malloc and free of large blocks", nothing, large, LATER, NULL},
    {"calloc of reused memory", dirty, zeros, LATER, NULL},
    {"realloc in all its forms", nothing, resizes, LATER, NULL},
    {"aligned_alloc, memalign, posix_memalign, valloc, pvalloc", nothing, aligned, LATER, NULL},
    {"requests that must fail", one_block, refused, LATER, NULL},
    {"malloc_trim", to_trim, trim, LATER, NULL},
    {"mallinfo2, mallinfo", to_trim, info, LATER, NULL},
    {"mallopt", nothing, options, LATER, NULL},
    {"malloc_stats", open_sink, to_stderr, LATER, NULL},
    {"malloc_info", open_sink, to_stream, LATER, NULL},
    {"malloc_usable_size, free_sized, free_aligned_sized", one_block, sizes_of, LATER, NULL},
    {"operator new and delete", find_operators, operators, LATER, NULL},
    {"neap_stack_*", nothing, stacks, LATER, NULL},
    {"decay on the way", to_decay, decay, LATER, "NEAP_PURGE_THREAD=never"},
    {"decay on the way, a soft limit passed", to_decay, decay, LATER, "NEAP_LIMIT_SOFT=32M"},
    {"free that starts or wakes the purge thread", nothing, much_freed, LATER, NULL},
    {"_exit with statistics", nothing, leave, LAST, "NEAP_STATS=json"},
};
enum { ENTRIES = sizeof entries / sizeof *entries };

/* Whether the entry runs with a cancellation pending. */
static int cancelled;

static void *in_thread(void *chosen) {
    const struct entry *entry = chosen;
    /* What the C library does at first use is not the entry's. */
    call_on(stack + STACK_BYTES, nothing);
    memset(stack, PAINT, STACK_BYTES);
    if (cancelled)
        pthread_cancel(pthread_self());
    call_on(stack + STACK_BYTES, entry->entry);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return NULL;
}

static size_t measure(const struct entry *entry) {
    /* A hang ends, too. */
    alarm(240);
    pthread_t thread;
    CHECK(served_by_neap("malloc"));
    stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    entry->before();
    if (entry->when == LATER && !cancelled) {
        in_thread((void *)entry);
    } else if (entry->when == LAST) {
        if (fork() == 0)
            in_thread((void *)entry);
        wait(NULL);
    } else {
        void *result;
        CHECK(pthread_create(&thread, NULL, in_thread, (void *)entry) == 0);
        CHECK(pthread_join(thread, &result) == 0);
        CHECK(result != PTHREAD_CANCELED);
    }
    return used_bytes();
}

/* The thread's end runs on the thread's own stack: what it takes there beyond what an idle thread's
   takes. */
static void *works(void *unused) {
    call_on(stack + STACK_BYTES, much_freed);
    return unused;
}
static void *idles(void *unused) { return unused; }

static size_t end_of(void *(*body)(void *)) {
    unsigned char *work_stack = stack;
    unsigned char *own = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(own != MAP_FAILED);
    memset(own, PAINT, STACK_BYTES);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, own, STACK_BYTES) == 0);
    CHECK(pthread_create(&thread, &attributes, body, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    stack = own;
    size_t used = used_bytes();
    stack = work_stack;
    return used;
}

static size_t measure_end(void) {
    stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    size_t idle = end_of(idles), worked = end_of(works);
    return worked > idle ? worked - idle : 0;
}

#define END "end of a thread"

static size_t measure_named(const char *name) {
    if (!strcmp(name, END))
        return measure_end();
    for (int i = 0; i < ENTRIES; i++)
        if (!strcmp(name, entries[i].name))
            return measure(&entries[i]);
    dprintf(2, "no entry is called %s\n", name);
    exit(2);
}

/* Runs one entry in a process of its own. 1 if it failed. */
static int run(const char *self, const char *how, const char *name, const char *variable) {
    char argument[128];
    int status;
    snprintf(argument, sizeof argument, "=%s", name);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (variable != NULL)
            putenv((char *)variable);
        setenv("NEAP_STATS_FILE", "/dev/null", 1);
        char *const arguments[] = {(char *)self, (char *)how, argument, NULL};
        exec_alike(arguments);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status))
        dprintf(2, "%s: signal %d\n", name, WTERMSIG(status));
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    cancelled = !strcmp(arguments[1], "cancel");
    size_t most = cancelled ? SIZE_MAX / 2 : strtoul(arguments[1], NULL, 10);
    if (count == 3 && arguments[2][0] == '=') {
        const char *name = arguments[2] + 1;
        size_t used = measure_named(name);
        printf("%6zu %s\n", used, name);
        if (used > most)
            dprintf(2, "%s takes %zu bytes of stack, %zu are allowed\n", name, used, most);
        fflush(stdout);
        _exit(used > most);
    }
    int failures = 0;
    for (int i = 0; i < ENTRIES; i++)
        failures += run(arguments[0], arguments[1], entries[i].name, entries[i].variable);
    failures += run(arguments[0], arguments[1], END, NULL);
    return failures != 0;
}
