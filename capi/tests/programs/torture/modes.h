/* What is done to the library's way of asking the kernel: once before the rounds or after some
   of them, or again and again between them. */
#ifndef MODES_H
#define MODES_H

#include "descriptors.h"
#include "locking.h"
#include "workers.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>

enum { SKIPPED = 77 };

__attribute__((noreturn)) static void skip(const char *why) {
    dprintf(1, "SKIPPED: %s: %s\n", why, strerror(errno));
    _exit(SKIPPED);
}

/* A process that sleeps: forked before the first large block, so that its pagemap calls every
   such block unpopulated. It ends with this one. */
static pid_t sleeper;

static void start_sleeper(void) {
    pid_t parent = getpid();
    sleeper = fork();
    if (sleeper != 0) return;
    /* Whoever waits for the end of our output must not wait for this process. */
    for (int i = 0; i < 3; i++) close(i);
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == parent) sleep(1);
    _exit(0);
}

static void end_sleeper(void) {
    /* Refused to a process that gave its privileges up: then it ends by itself. */
    if (sleeper > 0 && kill(sleeper, SIGKILL) == 0) waitpid(sleeper, NULL, 0);
}

static void close_found(struct worker *worker) {
    int numbers[MOST_DESCRIPTORS], count = open_pagemaps(numbers);
    (void)worker;
    for (int i = 0; i < count; i++) close(numbers[i]);
    atomic_fetch_add(&totals->attacks, count);
}

static void close_all(struct worker *worker) {
    int numbers[MOST_DESCRIPTORS];
    (void)worker;
    atomic_fetch_add(&totals->attacks, open_pagemaps(numbers));
    syscall(SYS_close_range, 3u, ~0u, 0u);
}

/* Something else that is open: harmless, silent, foreign, or plausible and wrong. */
static int impostor(uint64_t *state) {
    char path[64] = "/dev/null";
    int pipes[2];
    switch (below(state, 5)) {
    case 0: break;
    case 1:
        if (pipe2(pipes, O_CLOEXEC) != 0) return -1;
        close(pipes[1]);
        return pipes[0];
    case 2: snprintf(path, sizeof path, "/proc/1/pagemap"); break;
    default: snprintf(path, sizeof path, "/proc/%d/pagemap", (int)sleeper);
    }
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void replace_found(struct worker *worker) {
    int numbers[MOST_DESCRIPTORS], count = open_pagemaps(numbers);
    int other = count > 0 ? impostor(&worker->state) : -1;
    if (other < 0) return;
    for (int i = 0; i < count; i++) dup3(other, numbers[i], O_CLOEXEC);
    atomic_fetch_add(&totals->attacks, count);
    close(other);
}

static void hide_proc(void) {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        skip("a mount namespace of its own");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) skip("private mounts");
    if (mount("none", "/proc", "tmpfs", 0, NULL) != 0) skip("a mount over /proc");
    CHECK(access("/proc/self/pagemap", F_OK) != 0);
}

static void exhaust_descriptors(void) {
    struct rlimit limit = {64, 64};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
    CHECK(errno == EMFILE);
    may_exec = 0;
}

static void become_private(void) {
    if (getuid() == 0) CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
    CHECK(open("/proc/self/pagemap", O_RDONLY) < 0);
    may_exec = 0;
}

/* Every page is populated as soon as it can be, and MADV_DONTNEED fails. */
static void lock_everything(void) {
    if (!may_lock((size_t)1 << 30)) skip("locking 1 GiB (ulimit -l)");
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) skip("mlockall");
}

#define KILL_AT(number)                                                                           \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1),                                           \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static struct sock_filter no_questions[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    KILL_AT(SYS_ioctl),
    KILL_AT(SYS_openat),
    KILL_AT(SYS_openat2),
#ifdef SYS_open
    KILL_AT(SYS_open),
#endif
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = {sizeof no_questions / sizeof *no_questions, no_questions};

static void promise_no_privileges(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) skip("PR_SET_NO_NEW_PRIVS");
    may_exec = 0;
}

static void filter_by_prctl(void) {
    promise_no_privileges();
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) skip("PR_SET_SECCOMP");
}

/* As libseccomp does: the library hears only of the promise that comes before. */
static void filter_by_call(void) {
    promise_no_privileges();
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) skip("seccomp");
}

struct mode {
    const char *name;
    void (*once)(void);
    void (*often)(struct worker *);
};

static const struct mode modes[] = {
    {"plain", NULL, NULL},
    {"close", NULL, close_found},
    {"closefrom", NULL, close_all},
    {"replace", NULL, replace_found},
    {"hidden", hide_proc, NULL},
    {"nofile", exhaust_descriptors, NULL},
    {"nondumpable", become_private, NULL},
    {"locked", lock_everything, NULL},
    {"seccomp", filter_by_prctl, NULL},
    {"seccomp-call", filter_by_call, NULL},
};

#endif
