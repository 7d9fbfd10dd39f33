// Looks at its own status page and profile, as another process would, and does harm to them.
//
//   status_page present | hidden | fork | purged | exec | vfork | ask | hostile | toggle | sampled
//   status_page twice | sandbox | sandboxed-fork | small-stack | clone | exit-in-handler | quiet
//   status_page quiet-child | small | idle | busy | rung-in-vain
//
// The layout is that of shared/src/status_page.rs and shared/src/sites.rs.
#define _GNU_SOURCE
#include "life.h"
#include "purge_thread.h"

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
    // After two words of the figures, the ledger: requested, rounding, -untouched, -swapped, then
    // what is added.
    _Atomic uint64_t *ledger = words + FIGURES + 2;
    uint64_t sum = ledger[0] + ledger[1] - ledger[2] - ledger[3];
    for (int line = 4; line < 15; line++)
        sum += ledger[line];
    CHECK(sum == ledger[15] && sum > 100000);
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

// At one sample every 4 KiB, each block of 32,000 bytes is sampled but for one in 2,500.
static void twice(void) {
    char *block = malloc(32000);
    free(block);
    free(block);
    puts("no abort");
}

// The block has left a quarantine meanwhile.
static void twice_later(void) {
    char *block = malloc(32000);
    free(block);
    for (int i = 0; i < 20000; i++) {
        char *volatile other = malloc(32000);
        free(other);
    }
    free(block);
    for (int i = 0; i < 20000; i++) {
        char *volatile other = malloc(32000);
        free(other);
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
    int profile = descriptor_of("neap-profile"), status_page = descriptor_of("neap-status");
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

// Many children end in a handler that may have interrupted a sample, or the holder of any lock.
static void exit_in_handler(void) {
    for (int i = 0; i < 400; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            unsigned seed = i;
            signal(SIGUSR1, leave);
            for (;;)
                work(&seed, 100);
        }
        usleep(2000 + i * 7919 % 6000);
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
    else if (!strcmp(what, "purged")) child_purged_nothing();
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
    else if (!strcmp(what, "twice-later")) twice_later();
    else if (!strcmp(what, "sandbox")) sandbox();
    else if (!strcmp(what, "sandboxed-fork")) sandboxed_fork();
    else if (!strcmp(what, "small-stack")) small_stack();
    else if (!strcmp(what, "clone")) cloned();
    else if (!strcmp(what, "exit-in-handler")) exit_in_handler();
    else fail("which?");
    return 0;
}
