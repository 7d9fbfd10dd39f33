/* Shows a program the system calls of its thread that are not the C library's: Neap's, between
   watch_calls(1) and watch_calls(0). Neap calls the kernel by number, so no function of the
   program's can stand in front of its calls. By the kernel's dispatch to user space (x86-64, Linux
   5.11). */
#ifndef OWN_CALLS_H
#define OWN_CALLS_H

#include "check.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { SET_DISPATCH = 59, SKIPPED_CALLS = 77 };

static long (*next_syscall)(long, ...);

/* What becomes of a call: the kernel's answer, a negative number for an error. */
static long seen(long number, const long *arguments);

/* Hands a call on. */
static long passed(long number, const long *a) {
    long answer = next_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return answer == -1 ? -errno : answer;
}

#ifdef __x86_64__
static void on_call(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    long arguments[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                         registers[REG_R10], registers[REG_R8], registers[REG_R9]};
    int before = errno;
    (void)signal;
    registers[REG_RAX] = seen(info->si_syscall, arguments);
    errno = before;
}
#endif

/* Where the C library is, whose own calls are not shown. */
static void c_library(unsigned long *start, unsigned long *end) {
    unsigned long inside = (unsigned long)next_syscall, low, high;
    char line[PATH_MAX + 128], path[PATH_MAX] = "", own[PATH_MAX];
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %s", &low, &high, own) == 3 && low <= inside && inside < high) strcpy(path, own);
    CHECK(path[0]);
    rewind(maps);
    *start = *end = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %s", &low, &high, own) != 3 || strcmp(path, own)) continue;
        if (!*start) *start = low;
        *end = high;
    }
    fclose(maps);
}

/* Once, before the first watch_calls. */
static void prepare_calls(void) {
#ifdef __x86_64__
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    void *library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
    next_syscall = (long (*)(long, ...))dlsym(library, "syscall");
    // Older glibc's libpthread has one too, whose handlers return from there: a call that is shown.
    int (*act)(int, const struct sigaction *, struct sigaction *) = dlsym(library, "sigaction");
    CHECK(next_syscall && act && act(SIGSYS, &action, NULL) == 0);
#endif
}

static void watch_calls(int on) {
    static char selector = 1;
    unsigned long start = 0, end = 0;
    if (on) c_library(&start, &end);
    if (next_syscall && next_syscall(SYS_prctl, SET_DISPATCH, on, start, end - start, on ? &selector : NULL) == 0) return;
    puts("SKIPPED: the kernel does not dispatch system calls (x86-64, Linux 5.11)");
    fflush(stdout);
    _exit(SKIPPED_CALLS);
}

#endif
