/* One wrong access or call, as the argument says, for the reports of guarded blocks. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <ucontext.h>
#endif

static char *volatile block;
static volatile char sink;

static void overflow(void) {
    for (int i = 24; i < 5000; i++)
        block[i] = 1;
}

static void underflow(void) {
    for (int i = 1; i < 5000; i++)
        sink = block[-i];
}

static void use_after_free(void) {
    free(block);
    sink = block[3];
}

static void double_free(void) {
    free(block);
    free(block);
}

static void small_overflow(void) {
    block[24] = 0;
    free(block);
}

static void interior(void) { free(block + 8); }

static void resize_freed(void) {
    free(block);
    block = realloc(block, 100);
}

static void *overflow_in_thread(void *unused) {
    overflow();
    return unused;
}

static void in_thread(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, overflow_in_thread, NULL));
    pthread_join(thread, NULL);
}

/* The parent's exit status is the child's signal. */
static void in_child(void) {
    pid_t child = fork();
    int status;
    if (child == 0) {
        char *own = malloc(24);
        memset(own, 1, 24);
        free(own);
        use_after_free();
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    _exit(WTERMSIG(status));
}

/* A small stack, without an alternate one for signals. musl has no makecontext. */
#ifdef __GLIBC__
static void on_small_stack(void) {
    static char stack[24 << 10] __attribute__((aligned(16)));
    static ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, overflow, 0);
    swapcontext(&here, &there);
}
#else
static void on_small_stack(void) {
    pthread_attr_t small;
    pthread_t thread;
    CHECK(!pthread_attr_init(&small) && !pthread_attr_setstacksize(&small, 24 << 10));
    CHECK(!pthread_create(&thread, &small, overflow_in_thread, NULL));
    pthread_join(thread, NULL);
}
#endif

static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    CHECK(errno == 77);
    CHECK(info->si_addr != NULL);
    _exit(7);
}

static void plain_handler(int signal) { _exit(signal == SIGSEGV ? 8 : 1); }

static void own_handler(void) {
    struct sigaction new = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, old;
    CHECK(!sigaction(SIGSEGV, &new, &old) && old.sa_handler == SIG_DFL);
    CHECK(!sigaction(SIGSEGV, NULL, &old) && old.sa_sigaction == handler);
    CHECK(old.sa_flags & SA_SIGINFO);
    errno = 77;
    use_after_free();
}

static void by_signal(void) {
    CHECK(signal(SIGSEGV, plain_handler) == SIG_DFL);
    CHECK(signal(SIGSEGV, plain_handler) == plain_handler);
    struct sigaction set;
    CHECK(sigaction(SIGSEGV, NULL, &set) == 0 && set.sa_flags & SA_RESTART);
    CHECK(sigismember(&set.sa_mask, SIGSEGV) == 1 && !sigismember(&set.sa_mask, SIGBUS));
    use_after_free();
}

static void restoring_handler(int signal_number) { signal(signal_number, SIG_DFL); }

/* The handler returns, and the instruction faults again, as in Rust programs. */
static void twice(void) {
    CHECK(signal(SIGSEGV, restoring_handler) == SIG_DFL);
    use_after_free();
}

/* Children of vfork set actions of their own, and share the parent's memory. */
static void by_signal_after_vfork(void) {
    CHECK(signal(SIGSEGV, plain_handler) == SIG_DFL);
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(signal(SIGSEGV, plain_handler) == plain_handler);
    use_after_free();
}

/* The kernel's own call, as some C libraries' other names for it make. */
static void set_past_the_library(void) {
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } raw, old;
    struct sigaction now;
    CHECK(!syscall(SYS_rt_sigaction, SIGSEGV, NULL, &old, 8));
    raw = old;
    raw.handler = (void *)plain_handler;
    raw.flags &= ~(unsigned long)SA_SIGINFO;
    CHECK(!syscall(SYS_rt_sigaction, SIGSEGV, &raw, NULL, 8));
    CHECK(!sigaction(SIGSEGV, NULL, &now) && now.sa_handler == plain_handler);
    CHECK(!sigaction(SIGSEGV, &now, NULL));
    use_after_free();
}

static void *set_again_and_again(void *unused) {
    struct sigaction action;
    for (;;)
        CHECK(!sigaction(SIGSEGV, NULL, &action) && !sigaction(SIGSEGV, &action, NULL));
    return unused;
}

/* Another thread is often within sigaction when a child is made. */
static void in_children_meanwhile(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, set_again_and_again, NULL));
    for (int i = 0; i < 1000; i++) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            alarm(20);
            CHECK(signal(SIGSEGV, plain_handler) == SIG_DFL);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    _exit(0);
}

static pthread_barrier_t start;

static void *set_once(void *pause) {
    struct sigaction new = {.sa_handler = plain_handler}, old;
    pthread_barrier_wait(&start);
    for (volatile uintptr_t i = 0; i < (uintptr_t)pause; i++)
        ;
    if ((uintptr_t)pause % 2)
        CHECK(!sigaction(SIGSEGV, &new, &old) && old.sa_handler == SIG_DFL);
    else
        CHECK(signal(SIGSEGV, plain_handler) == SIG_DFL);
    return NULL;
}

/* A thread sets its handler while another one puts Neap's in front. */
static void set_while_it_begins(void) {
    int (*begin)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "neap_stack_report_overflows");
    CHECK(begin != NULL);
    for (uintptr_t i = 0; i < 2000; i++) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            pthread_t thread;
            struct sigaction now, raw;
            CHECK(!pthread_barrier_init(&start, NULL, 2));
            CHECK(!pthread_create(&thread, NULL, set_once, (void *)(i * 2 % 4001)));
            pthread_barrier_wait(&start);
            begin();
            pthread_join(thread, NULL);
            CHECK(!sigaction(SIGSEGV, NULL, &now) && now.sa_handler == plain_handler);
            CHECK(!syscall(SYS_rt_sigaction, SIGSEGV, NULL, &raw, 8));
            CHECK(raw.sa_handler != plain_handler && raw.sa_handler != SIG_DFL);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    _exit(0);
}

/* Checks whether each block is guarded, and counts: such a block has the requested bytes only. */
static int found;

static int is_guarded(void) {
    char *own = malloc(24);
    int guarded = malloc_usable_size(own) == 24;
    free(own);
    return guarded;
}

static void *allocate_a_little(void *times) {
    for (uintptr_t i = 0; i < (uintptr_t)times; i++)
        found += is_guarded();
    return NULL;
}

static void run_thread(uintptr_t times) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, allocate_a_little, (void *)times));
    pthread_join(thread, NULL);
}

/* An interval of an hour begins anew in each child, where the first thread that allocates is the
   chosen one. */
static void in_short_threads(void) {
    for (int i = 0; i < 5000 && !is_guarded(); i++)
        ;
    run_thread(4);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        int status;
        if (child == 0) {
            found = 0;
            run_thread(1);
            for (int thread = 0; thread < 300; thread++)
                run_thread(4);
            _exit(found);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 1);
    }
    _exit(0);
}

/* No guarded block has a part in it. */
static void other_fault(void) {
    CHECK(signal(SIGSEGV, plain_handler) == SIG_DFL);
    CHECK(signal(SIGUSR1, SIG_IGN) == SIG_DFL && signal(SIGUSR1, SIG_DFL) == SIG_IGN);
    raise(SIGUSR1 == SIGSEGV ? SIGUSR1 : SIGSEGV);
}

/* The exit status tells on which stack a handler runs. */
static void tell_stack(int signal) {
    stack_t now;
    CHECK(signal == SIGSEGV && !sigaltstack(NULL, &now));
    _exit(now.ss_flags & SS_ONSTACK ? 9 : 8);
}

static void choose_stack(int flags) {
    static char alternate[64 << 10];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = tell_stack, .sa_flags = flags};
    CHECK(!sigaltstack(&stack, NULL) && !sigaction(SIGSEGV, &action, NULL));
}

/* A fault of the program's own, in which no guarded block has a part. */
static void with_chosen_stack(int flags) {
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    choose_stack(flags);
    *(volatile char *)page = 1;
}

static void on_its_stack(void) { with_chosen_stack(0); }

static void on_the_alternate_stack(void) { with_chosen_stack(SA_ONSTACK); }

static void guard_on_its_stack(void) {
    choose_stack(0);
    use_after_free();
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*work)(void);
    } all[] = {
        {"overflow", overflow},         {"underflow", underflow},
        {"use_after_free", use_after_free}, {"double_free", double_free},
        {"small_overflow", small_overflow}, {"interior", interior},
        {"resize_freed", resize_freed}, {"in_thread", in_thread},
        {"in_child", in_child},         {"on_small_stack", on_small_stack},
        {"own_handler", own_handler},   {"by_signal", by_signal},
        {"other_fault", other_fault},   {"twice", twice},
        {"by_signal_after_vfork", by_signal_after_vfork},
        {"set_past_the_library", set_past_the_library},
        {"in_children_meanwhile", in_children_meanwhile},
        {"set_while_it_begins", set_while_it_begins},
        {"in_short_threads", in_short_threads},
        {"on_its_stack", on_its_stack},
        {"on_the_alternate_stack", on_the_alternate_stack},
        {"guard_on_its_stack", guard_on_its_stack},
    };
    CHECK(count == 2);
    block = malloc(24);
    memset(block, 1, 24);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(arguments[1], all[i].name))
            all[i].work();
    return 0;
}
