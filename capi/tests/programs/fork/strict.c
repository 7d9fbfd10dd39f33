/* A filter that allows only what every allocator needs, and what ends the process. The heap lives
   on in it: in the thread that entered it, and in one that was there before. Argument 1: how it is
   installed, `prctl`, `syscall`, or `threads`, for all threads. Argument 2: `thread` if there is a
   purge thread before, or `none`. */
#include "../purge/purge.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>

#define ALLOW(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_write),
    ALLOW(SYS_exit_group),
    ALLOW(SYS_rt_sigreturn),
    ALLOW(SYS_brk),
    ALLOW(SYS_mmap),
    ALLOW(SYS_munmap),
    ALLOW(SYS_mremap),
    ALLOW(SYS_mprotect),
    ALLOW(SYS_madvise),
    ALLOW(SYS_futex),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
};
static struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};

/* Says which call it was. */
static void on_refusal(int signal, siginfo_t *what, void *context) {
    (void)signal, (void)context;
    char text[] = "a call that is not allowed: 000\n";
    for (int at = sizeof text - 3, rest = what->si_syscall; rest > 0; rest /= 10) text[at--] = '0' + rest % 10;
    if (write(2, text, sizeof text - 1) < 0) _exit(4);
    _exit(3);
}

static void enter(const char *way) {
    if (!strcmp(way, "prctl")) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) skip("no new privileges");
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) skip("seccomp");
        return;
    }
    unsigned flags = strcmp(way, "threads") ? 0 : SECCOMP_FILTER_FLAG_TSYNC;
    if (syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) skip("no new privileges");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter) != 0) skip("seccomp");
}

static void use(size_t size) {
    char *block = malloc(size), *zeros = calloc(1, size);
    CHECK(block && zeros && zeros[0] == 0 && zeros[size - 1] == 0);
    memset(block, 1, size);
    memset(zeros, 1, size);
    block = realloc(block, size * 3);
    CHECK(block && block[size - 1] == 1);
    block = realloc(block, size / 2 + 1);
    CHECK(block);
    free(block);
    free(zeros);
}

/* Small, large, many at a time: every slow path. */
static void use_all(void) {
    void **many = malloc(20000 * sizeof *many);
    CHECK(many);
    for (int turn = 0; turn < 4; turn++) {
        for (size_t size = 1; size <= 8 << 20; size = size * 5 / 2 + 1) use(size);
        for (int i = 0; i < 20000; i++) CHECK((many[i] = malloc(16 + i % 5000)));
        for (int i = 0; i < 20000; i++) free(many[i]);
        empty(fill(FILLED / 4));
        CHECK(malloc(hidden(SIZE_MAX / 4)) == NULL);
    }
    free(many);
}

static atomic_int entered, done;

static void *other(void *unused) {
    free(malloc(100));
    atomic_store(&done, 1);
    while (!atomic_load(&entered)) {}
    use_all();
    atomic_store(&done, 2);
    for (;;) {}
    return unused;
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    struct sigaction action = {.sa_sigaction = on_refusal, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    alarm(240);
    if (!strcmp(arguments[2], "thread")) with_purge_thread();
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    while (atomic_load(&done) < 1) {}
    enter(arguments[1]);
    atomic_store(&entered, 1);
    use_all();
    while (atomic_load(&done) < 2) {}
    _exit(0);
}
