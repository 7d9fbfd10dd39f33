/* A coroutine runs over the end of its stack. The argument says where and under what
   circumstances. */
#include "overflow.h"
#include <sys/syscall.h>

/* A name of several lines, longer than what goes out in one write. */
#define FIFTY "0123456789012345678901234567890123456789012345678\n"
#define LINES "\033[2J" FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY FIFTY "end"

static sigjmp_buf back;
static volatile int seen;

static void on_fault(int signal) {
    seen = signal;
    siglongjmp(back, 1);
}

static void on_fault_with_address(int signal, siginfo_t *info, void *context) {
    CHECK(info->si_addr != NULL && context != NULL);
    on_fault(signal);
}

static void handle(int flags) {
    struct sigaction action = {0};
    if (flags & SA_SIGINFO)
        action.sa_sigaction = on_fault_with_address;
    else
        action.sa_handler = on_fault;
    action.sa_flags = flags;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}

/* A file shorter than its mapping: the program's own SIGBUS comes to its own handler, set before
   and after Neap's, which stays out of sight. */
static void own_bus_error(void) {
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK}, before;
    CHECK(sigaction(SIGBUS, &action, &before) == 0);
    CHECK(before.sa_handler == SIG_DFL || before.sa_handler == on_fault);
    int file = memfd_create("empty", 0);
    CHECK(file >= 0);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(page != MAP_FAILED);
    seen = 0;
    if (sigsetjmp(back, 1) == 0) *(volatile char *)page = 1;
    CHECK(seen == SIGBUS);
    CHECK(close(file) == 0);
}

/* The program's own fault comes to its own handler. */
static void own_fault(void) {
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    seen = 0;
    if (sigsetjmp(back, 1) == 0) *(volatile char *)page = 1;
    CHECK(seen == SIGSEGV);
}

static void fault_in_handler(int signal) {
    CHECK(signal == SIGUSR1);
    own_fault();
}

/* So does one on the alternate stack, in another signal's handler. */
static void nested_fault(void) {
    struct sigaction action = {.sa_handler = fault_in_handler, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
}

/* And one that another handler sent again, with what the kernel told. It does not repeat. */
static void resent_fault(void) {
    siginfo_t info = {.si_signo = SIGSEGV, .si_code = SEGV_MAPERR};
    seen = 0;
    if (sigsetjmp(back, 1) == 0)
        CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGSEGV, &info) == 0);
    CHECK(seen == SIGSEGV);
}

static __attribute__((noinline)) int fault_near_end(const volatile char *page) {
    volatile char local[256];
    local[0] = 1;
    if ((uintptr_t)local - (uintptr_t)inside.uc_stack.ss_sp < 1024) return *page;
    return fault_near_end(page) + local[0];
}

/* A fault that the program would handle, where its handler has room only on another stack. */
static void fault_without_room(void) {
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    fault_near_end(page);
}

static void *in_thread(void *owner) {
    CHECK(neap_stack_report_overflows() == 1);
    run(endless, owner);
    return NULL;
}

static void ends(void) {}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "plain";
    if (!strcmp(how, "silent")) run(endless, NULL);
    if (!strcmp(how, "own-stack") || !strcmp(how, "no-room")) handle(0);
    if (!strcmp(how, "handler")) handle(SA_ONSTACK);
    if (!strcmp(how, "siginfo")) handle(SA_SIGINFO | SA_ONSTACK);
    if (!strcmp(how, "once")) handle(SA_RESETHAND);
    if (!strcmp(how, "ignored")) signal(SIGSEGV, SIG_IGN);
    if (!strcmp(how, "bus")) own_bus_error();
    CHECK(neap_stack_report_overflows() == 1);
    CHECK(neap_stack_report_overflows() == 1);
    run(ends, NULL);
    if (!strcmp(how, "handler") || !strcmp(how, "siginfo") || !strcmp(how, "own-stack")) {
        own_fault();
        nested_fault();
        if (!strcmp(how, "handler")) resent_fault();
        own_fault();
    } else if (!strcmp(how, "once")) {
        own_fault();
        own_fault();
    } else if (!strcmp(how, "bus")) {
        own_bus_error();
        own_bus_error();
    } else if (!strcmp(how, "ignored")) {
        raise(SIGSEGV);
        CHECK(write(1, "on\n", 3) == 3);
    } else if (!strcmp(how, "sent")) {
        raise(SIGSEGV);
    } else if (!strcmp(how, "elsewhere")) {
        *(volatile char *)hidden(64) = 1;
    } else if (!strcmp(how, "thread")) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, in_thread, "worker 7") == 0);
        pthread_join(thread, NULL);
    }
    if (!strcmp(how, "no-room")) run(fault_without_room, "a coroutine");
    run(endless, strcmp(how, "lines") ? "a coroutine" : LINES);
}
