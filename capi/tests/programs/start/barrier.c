/* Traps each membarrier and lets it through. While another thread sleeps on free blocks, main calls
   malloc_trim: it issues a barrier, and the process has been registered for that before, for with
   two threads the kernel waits for a grace period of RCU then. */
#include "../check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { EXPEDITED = 1 << 3, REGISTER = 1 << 4, OURS = 12345, SKIPPED = 77 };

static int barriers, registrations;

/* By hand: the library watches `syscall`. membarrier ignores its third argument without flags. */
static long call(long number, long a, long b, long c) {
#if defined __x86_64__
    long result = number;
    register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
    __asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
#endif
}

static void on_trap(int number, siginfo_t *info, void *context) {
    (void)number, (void)info;
    mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
#if defined __x86_64__
    long command = machine->gregs[REG_RDI];
    machine->gregs[REG_RAX] = call(SYS_membarrier, command, 0, OURS);
#else
    long command = machine->regs[0];
    machine->regs[0] = call(SYS_membarrier, command, 0, OURS);
#endif
    barriers += command == EXPEDITED;
    registrations += command == REGISTER;
}

static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 2),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OURS, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
};
static struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};

static pthread_barrier_t filled, trimmed;

static void *sleeper(void *unused) {
    void *blocks[64];
    for (int i = 0; i < 64; i++) CHECK(blocks[i] = malloc(64));
    for (int i = 0; i < 64; i++) free(blocks[i]);
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&trimmed);
    return unused;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    pthread_t thread;
    CHECK(pthread_barrier_init(&filled, NULL, 2) == 0 && pthread_barrier_init(&trimmed, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, sleeper, NULL) == 0);
    pthread_barrier_wait(&filled);
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0) == 0);
    if (call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter) != 0) {
        puts("SKIPPED: no filter of system calls may be set here");
        return SKIPPED;
    }
    malloc_trim(0);
    dprintf(1, "%d barriers, %d registrations\n", barriers, registrations);
    CHECK(barriers > 0 && registrations == 0);
    pthread_barrier_wait(&trimmed);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
