// Looks at its own status page and profile, as another process would, and does harm to them.
//
//   status_page present | hidden | fork | exec | vfork | ask | hostile | toggle | sampled | twice
//   status_page sandbox | sandboxed-fork | small-stack | clone | exit-in-handler | quiet | quiet-child
//   status_page small | idle | busy | rung-in-vain
//
// The layout is that of shared/src/status_page.rs and shared/src/sites.rs.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL = 512 / 8, SERVED = 1024 / 8, ARENAS = 1280, FIGURES = 4096 / 8 + 1, BYTES = 192 << 10 };
enum { ASK = CONTROL, LEASE, INTERVAL, PURGE, SAMPLE, RATE, BELL };
enum { SERVED_PURGE = SERVED + 1, THREAD = SERVED + 8 };
enum { HERE = 1 };

static void fail(const char *what) {
    fprintf(stderr, "FAILED: %s (%s)\n", what, strerror(errno));
    _exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition))

// The one descriptor whose file has this name; -1 if there is none; fails if there are more.
static int descriptor_of(const char *name) {
    int found = -1;
    for (int number = 3; number < 1024; number++) {
        char path[64], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = 0;
        if (strstr(target, name)) {
            CHECK(found == -1);
            found = number;
        }
    }
    return found;
}

static uint64_t word_of(int descriptor, long offset) {
    uint64_t word;
    CHECK(pread(descriptor, &word, 8, offset) == 8);
    return word;
}

static _Atomic uint64_t *status_page(void) {
    int descriptor = descriptor_of("neap-board");
    CHECK(descriptor >= 0);
    void *base = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(base != MAP_FAILED);
    return base;
}

static void present(void) {
    int descriptor = descriptor_of("neap-board");
    CHECK(descriptor >= 0);
    CHECK(memcmp((uint64_t[]){word_of(descriptor, 0)}, "NeapBord", 8) == 0);
    CHECK(word_of(descriptor, 24) == (uint64_t)getpid());
    CHECK(word_of(descriptor, 40) == 1);
    // Where the heap is: a program that allocates next to nothing has one arena, too.
    free(malloc(1));
    CHECK(word_of(descriptor, ARENAS) == 1);
    CHECK(word_of(descriptor, ARENAS + 8) != 0 && word_of(descriptor, ARENAS + 16) >= 1 << 20);
    int seals = fcntl(descriptor, F_GET_SEALS);
    CHECK(seals >= 0 && (seals & F_SEAL_SHRINK) && (seals & F_SEAL_GROW));
    CHECK(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    CHECK(ftruncate(descriptor, 0) == -1);
}

static void hidden(void) { CHECK(descriptor_of("neap-board") == -1); }

static int has_status_page(void) { return descriptor_of("neap-board") >= 0; }

// By two megabytes, with few calls.
static void grows(void) {
    CHECK(!has_status_page());
    for (int i = 0; i < 32; i++)
        CHECK(malloc(64 << 10));
    CHECK(has_status_page());
    present();
}

// By nothing, with many calls that the fast path cannot serve.
static void works(void) {
    CHECK(!has_status_page());
    for (int i = 0; i < 300; i++)
        free(malloc(100 << 10));
    CHECK(has_status_page());
    present();
}

// The child's counts begin anew, and the parent's status_page is not its own.
static void forks_early(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(malloc(100 << 10));
        CHECK(!has_status_page());
        grows();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    works();
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 300; i++)
            free(malloc(100 << 10));
        present();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void child_has_its_own(int generations) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        present();
        int profile = descriptor_of("neap-profile");
        CHECK(profile >= 0 && word_of(profile, 24) == (uint64_t)getpid());
        // It samples on, since now.
        CHECK(word_of(profile, 32) == 64 << 10 && word_of(profile, 72) != 0 && word_of(profile, 80) != 0);
        if (generations > 1)
            child_has_its_own(generations - 1);
        free(malloc(100000));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    present();
}

static void exec_again(char **arguments) {
    if (getenv("SECOND")) {
        present();
        return;
    }
    setenv("SECOND", "1", 1);
    execv("/proc/self/exe", arguments);
    fail("exec");
}

// What the child of vfork does to the heap is done to its parent's, but the status_page stays its parent's.
static void vforked(void) {
    int descriptor = descriptor_of("neap-board");
    _Atomic uint64_t *words = status_page();
    words[ASK] = 7;
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 20000; i++)
            free(malloc(100 + i % 5000));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(word_of(descriptor, 24) == (uint64_t)getpid());
}

// As an observer does when it has written what it asks for.
static void ring(_Atomic uint64_t *words) {
    __atomic_fetch_add((uint32_t *)&words[BELL], 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &words[BELL], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

// Asks, and waits for the answer for as long as any machine takes.
static void is_answered(_Atomic uint64_t *words, uint64_t asked) {
    words[ASK] = asked;
    ring(words);
    for (int i = 0; i < 60000 && words[SERVED] != asked; i++)
        usleep(500);
    CHECK(words[SERVED] == asked);
}

// How often the task gave up its processor by itself; -1 if it is not the purge thread.
static long switches(const char *task) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    const char *line = strstr(text, "\nvoluntary_ctxt_switches:\t");
    return line && strstr(text, "neap-purge\n") ? atol(strchr(line, '\t')) : -1;
}

// The purge thread's switches; -1 while it is not there.
static long purge_switches(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    long found = -1;
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (switches(entry->d_name) >= 0)
            found = switches(entry->d_name);
    closedir(tasks);
    return found;
}

// Waits until the thread sleeps until it is rung: it has not moved for longer than it ever dozes.
static void rests(void) {
    long before = -1;
    for (int i = 0; i < 30 && (before < 0 || before != purge_switches()); i++) {
        before = purge_switches();
        usleep(1500000);
    }
    CHECK(before >= 0 && before == purge_switches());
}

static void *blocks[4096];
static atomic_int done;

static void exchange(unsigned *seed, void *moved) {
    int place = rand_r(seed) % 4096;
    ((uintptr_t *)moved)[0] = (uintptr_t)moved;
    ((uintptr_t *)moved)[1] = place;
    uintptr_t *before = __atomic_exchange_n(&blocks[place], moved, __ATOMIC_ACQ_REL);
    if (before) {
        CHECK(before[0] == (uintptr_t)before && before[1] == (uintptr_t)place);
        before[0] = 0;
        free(before);
    }
}

// Allocates and frees, so that slow paths come by; checks that contents stay.
static void work(unsigned *seed, int rounds) {
    for (int round = 0; round < rounds; round++) {
        size_t size = 1 + rand_r(seed) % (rand_r(seed) % 20 == 0 ? 200000 : 2000);
        unsigned char *block = rand_r(seed) % 3 ? malloc(size) : calloc(1, size);
        CHECK(block && malloc_usable_size(block) >= size && (uintptr_t)block % 16 == 0);
        memset(block, (int)size & 255, size);
        size_t other = 1 + rand_r(seed) % 3000;
        unsigned char *moved = realloc(block, other);
        CHECK(moved);
        for (size_t i = 0; i < (size < other ? size : other); i += 61)
            CHECK(moved[i] == (size & 255));
        // Some are freed by another thread, later. Every one says until then where it lies: a block that two have says the wrong thing.
        if (other < 16)
            free(moved);
        else
            exchange(seed, moved);
    }
}

static void *worker(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number + 1;
    while (!done)
        work(&seed, 200);
    return 0;
}

static void ask(void) {
    _Atomic uint64_t *words = status_page();
    unsigned seed = 1;
    work(&seed, 20000);
    words[ASK] = 99;
    for (int i = 0; i < 30000 && words[SERVED] != 99; i++) {
        work(&seed, 100);
        usleep(1000);
    }
    CHECK(words[SERVED] == 99);
    // After two words of the figures, the ledger: requested, rounding, -untouched, -swapped, then what is added.
    _Atomic uint64_t *ledger = words + FIGURES + 2;
    uint64_t sum = ledger[0] + ledger[1] - ledger[2] - ledger[3];
    for (int line = 4; line < 15; line++)
        sum += ledger[line];
    CHECK(sum == ledger[15] && sum > 100000);
}

// More than from which on a process has the thread.
static void grow(void) {
    for (int i = 0; i < 2048; i++)
        CHECK(memset(malloc(4000), 1, 4000));
}

// A small program has no thread, and so no answer while it sleeps.
static void small(void) {
    _Atomic uint64_t *words = status_page();
    words[ASK] = 7;
    ring(words);
    usleep(300000);
    CHECK(words[SERVED] != 7 && words[THREAD] != HERE && purge_switches() < 0);
}

// A program that sleeps answers each time, and nothing wakes in it in between.
static void idle(void) {
    _Atomic uint64_t *words = status_page();
    grow();
    rests();
    CHECK(words[THREAD] == HERE);
    for (uint64_t asked = 1; asked <= 200; asked++)
        is_answered(words, asked);
    rests();
    words[PURGE] = 5;
    ring(words);
    for (int i = 0; i < 60000 && words[SERVED_PURGE] != 5; i++)
        usleep(500);
    CHECK(words[SERVED_PURGE] == 5);
}

// A program that is always busy, but only with what the fast paths serve, answers, too.
static void *fast_paths(void *unused) {
    while (!done) {
        void *volatile small = malloc(64);
        free(small);
    }
    return unused;
}

static void busy(void) {
    _Atomic uint64_t *words = status_page();
    pthread_t thread;
    grow();
    CHECK(pthread_create(&thread, 0, fast_paths, 0) == 0);
    for (uint64_t asked = 1; asked <= 50; asked++)
        is_answered(words, asked);
    done = 1;
    CHECK(pthread_join(thread, 0) == 0);
}

// Who rings without an end, for nothing, wakes the thread some times a second; and an observer is answered meanwhile.
static void *ring_in_vain(void *words) {
    while (!done)
        ring(words);
    return 0;
}

static void rung_in_vain(void) {
    _Atomic uint64_t *words = status_page();
    pthread_t thread;
    grow();
    rests();
    long before = purge_switches();
    CHECK(pthread_create(&thread, 0, ring_in_vain, words) == 0);
    sleep(3);
    long woken = purge_switches() - before;
    if (woken > 600) {
        fprintf(stderr, "woken %ld times in 3 s\n", woken);
        fail("rounds are bounded");
    }
    for (uint64_t asked = 1; asked <= 5; asked++)
        is_answered(words, asked);
    done = 1;
    CHECK(pthread_join(thread, 0) == 0);
    rests();
}

// Calls what the fast paths serve, or nothing at all: is it answered?
static void quiet(void) {
    _Atomic uint64_t *words = status_page();
    for (int nap = 0; nap < 2; nap++) {
        uint64_t asked = 7 + nap;
        // Long enough that a thread which does not stay has ended.
        sleep(3);
        words[ASK] = asked;
        ring(words);
        for (int i = 0; i < 30000 && words[SERVED] != asked; i++) {
            void *volatile small = nap ? NULL : malloc(64);
            free(small);
            usleep(1000);
        }
        CHECK(words[SERVED] == asked);
    }
}

static void quiet_child(void) {
    quiet();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // The thread of a child of fork is started by the first free on a slow path.
        void *volatile large = malloc(1 << 20);
        free(large);
        quiet();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void threads(void *(*harm)(void *), int milliseconds) {
    pthread_t workers[3], other;
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&workers[i], 0, worker, (void *)i) == 0);
    CHECK(pthread_create(&other, 0, harm, status_page()) == 0);
    usleep(milliseconds * 1000);
    done = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(workers[i], 0);
    pthread_join(other, 0);
}

// Random words everywhere, the control words most of all.
static void *harm(void *status_page) {
    _Atomic uint64_t *words = status_page;
    unsigned seed = 5;
    while (!done) {
        uint64_t random = (uint64_t)rand_r(&seed) << 33 ^ rand_r(&seed);
        words[CONTROL + rand_r(&seed) % 8] = random;
        words[rand_r(&seed) % (BYTES / 8)] = random;
        int profile = descriptor_of("neap-profile");
        if (profile >= 0)
            (void)!pwrite(profile, &random, 8, rand_r(&seed) % (1 << 20) & ~7);
        usleep(100);
    }
    return 0;
}

static void *toggle(void *status_page) {
    _Atomic uint64_t *words = status_page;
    for (uint64_t i = 1; !done; i++) {
        words[RATE] = i % 3 ? 4096 << i % 4 : 0;
        words[SAMPLE] = i;
        words[ASK] = i;
        if (i % 7 == 0)
            words[PURGE] = i;
        usleep(3000);
    }
    return 0;
}

// Nearly every block of 32,000 bytes is sampled at one sample every 4 KiB.
static void sampled(void) {
    int profile = descriptor_of("neap-profile");
    CHECK(profile >= 0);
    enum { COUNT = 200 };
    unsigned char *held[COUNT];
    for (int i = 0; i < COUNT; i++) {
        held[i] = calloc(1, 32000);
        CHECK(held[i] && malloc_usable_size(held[i]) == 32768);
        for (int at = 0; at < 32000; at++)
            CHECK(held[i][at] == 0);
        memset(held[i], i, 32768);
    }
    CHECK(word_of(profile, 48) > COUNT / 2);
    for (int i = 0; i < COUNT; i++) {
        CHECK(realloc(held[i], 31000) == held[i]);
        unsigned char *grown = realloc(held[i], 100000);
        for (int at = 0; at < 31000; at++)
            CHECK(grown[at] == i);
        held[i] = grown;
    }
    for (int i = 0; i < COUNT; i++)
        free(held[i]);
    // Live: nothing of these is left. The sites' third word of live things is the sixth of each.
    uint64_t sites = word_of(profile, 40), live = 0;
    for (uint64_t site = 0; site < sites; site++)
        live += word_of(profile, (256 << 10) + 576 * site + 48);
    CHECK(live < 1000000);
}

static void twice(void) {
    for (int i = 0; i < 50; i++) {
        char *block = malloc(32000);
        // A sampled block begins a span.
        if ((uintptr_t)block % 65536 == 0) {
            free(block);
            free(block);
        }
    }
    puts("no abort");
}

// A filter that the library was not told of: what a survey asks for kills.
static void enter_sandbox(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrusage, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    // Not by prctl, which the library watches.
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        fail("SKIPPED: no seccomp");
}

static void sandbox(void) {
    _Atomic uint64_t *words = status_page();
    unsigned seed = 3;
    work(&seed, 2000);
    enter_sandbox();
    words[ASK] = words[PURGE] = words[SAMPLE] = 77;
    words[RATE] = 8192;
    for (int i = 0; i < 200; i++) {
        work(&seed, 200);
        usleep(1000);
    }
    // Who ends is watched, too: its last figures would be written now.
    words[ASK] = 78;
}

static void sandboxed_fork(void) {
    unsigned seed = 3;
    work(&seed, 2000);
    enter_sandbox();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work(&seed, 200);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *small_worker(void *unused) {
    (void)unused;
    void *held[256] = {0};
    unsigned seed = 9;
    for (int i = 0; i < 200; i++) {
        for (int step = 0; step < 2000; step++) {
            void **place = &held[rand_r(&seed) % 256];
            free(*place);
            *place = malloc(16 + rand_r(&seed) % 3000);
        }
        usleep(1000);
    }
    return 0;
}

// A thread with the smallest stack there is comes by while an observer asks.
static void small_stack(void) {
    _Atomic uint64_t *words = status_page();
    words[ASK] = 5;
    words[LEASE] = 0;
    pthread_attr_t small;
    pthread_t thread;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN) == 0);
    CHECK(pthread_create(&thread, &small, small_worker, 0) == 0);
    CHECK(pthread_join(thread, 0) == 0);
}

// A child of which the C library does not know has a copy of the heap, but shares the files.
static void cloned(void) {
    enum { COUNT = 20000 };
    static void *held[COUNT];
    for (int i = 0; i < COUNT; i++)
        CHECK((held[i] = malloc(4000)) != 0);
    int profile = descriptor_of("neap-profile"), status_page = descriptor_of("neap-board");
    CHECK(profile >= 0 && status_page >= 0);
    uint64_t before[2] = {word_of(profile, (256 << 10) + 576 + 48), word_of(status_page, 2048 + 8)};
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        for (int i = 0; i < COUNT; i++)
            free(held[i]);
        for (int i = 0; i < 300; i++)
            malloc(1 << 20);
        syscall(SYS_exit_group, 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(word_of(profile, (256 << 10) + 576 + 48) == before[0] && before[0] > 0);
    CHECK(word_of(status_page, 2048 + 8) == before[1] && before[1] > 100);
}

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

// Many children end in a handler that may have interrupted a sample.
static void exit_in_handler(void) {
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            unsigned seed = i;
            signal(SIGUSR1, leave);
            for (;;)
                work(&seed, 100);
        }
        usleep(5000 + 100 * i);
        kill(child, SIGUSR1);
        int status;
        for (int wait = 0; wait < 30000 && waitpid(child, &status, WNOHANG) == 0; wait++) {
            if (wait == 29999) {
                kill(child, SIGKILL);
                fail("a child hangs in _exit");
            }
            usleep(1000);
        }
    }
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "present")) present();
    else if (!strcmp(what, "hidden")) hidden();
    else if (!strcmp(what, "grows")) grows();
    else if (!strcmp(what, "works")) works();
    else if (!strcmp(what, "forks-early")) forks_early();
    else if (!strcmp(what, "fork")) child_has_its_own(3);
    else if (!strcmp(what, "exec")) exec_again(arguments);
    else if (!strcmp(what, "vfork")) vforked();
    else if (!strcmp(what, "ask")) ask();
    else if (!strcmp(what, "small")) small();
    else if (!strcmp(what, "idle")) idle();
    else if (!strcmp(what, "busy")) busy();
    else if (!strcmp(what, "rung-in-vain")) rung_in_vain();
    else if (!strcmp(what, "quiet")) quiet();
    else if (!strcmp(what, "quiet-child")) quiet_child();
    else if (!strcmp(what, "hostile")) threads(harm, 1500);
    else if (!strcmp(what, "toggle")) threads(toggle, 1500);
    else if (!strcmp(what, "sampled")) sampled();
    else if (!strcmp(what, "twice")) twice();
    else if (!strcmp(what, "sandbox")) sandbox();
    else if (!strcmp(what, "sandboxed-fork")) sandboxed_fork();
    else if (!strcmp(what, "small-stack")) small_stack();
    else if (!strcmp(what, "clone")) cloned();
    else if (!strcmp(what, "exit-in-handler")) exit_in_handler();
    else fail("which?");
    return 0;
}
