/* Single steps take a thread through its first allocation, or through its end, and a handler forks
   when it comes to some of the instructions for the first time. The child returns from the handler,
   allocates, starts a thread, and ends its own, with which the process exits. Argument 1: how many
   forks. Argument 2: what is stepped, `first` or `end`. Argument 3: `fork`, or `clone`, of which
   the C library knows nothing. */
#include "../check.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

#ifndef __x86_64__
int main(void) {
    printf("SKIPPED: single steps are taken on x86-64 only\n");
    return 77;
}
#else

enum { BLOCKS = 300, BUSY = 2, LIVES = 2, TRAP = 0x100, PLACES = 1 << 16 };
static volatile sig_atomic_t is_child, forks, is_raw, steps_the_end;
static volatile long instructions, stride, offset;
static uintptr_t seen[PLACES];
static atomic_int over;
static pthread_key_t last;

static void set_trap(void) { __asm__ volatile("pushfq; orl %0, (%%rsp); popfq" ::"i"(TRAP) : "memory", "cc"); }
static void clear_trap(void) { __asm__ volatile("pushfq; andl %0, (%%rsp); popfq" ::"i"(~TRAP) : "memory", "cc"); }

/* A hang ends by a signal that no thread masks, and the parent sees it. */
static void end_after(time_t seconds) {
    timer_t limit;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec most = {.it_value = {.tv_sec = seconds}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &limit) == 0);
    CHECK(timer_settime(limit, 0, &most, NULL) == 0);
}

/* Whether the thread comes to this instruction for the first time. */
static int is_new(uintptr_t instruction) {
    size_t at = instruction * 0x9e3779b97f4a7c15 >> 48;
    while (seen[at] && seen[at] != instruction) at = (at + 1) % PLACES;
    int is = seen[at] == 0;
    seen[at] = instruction;
    return is;
}

/* musl's fork frees musl's locks in the child, even one that the interrupted thread holds, and the
   thread then frees it again. So with musl, a handler forks at instructions of the library only. */
static int may_fork_at(uintptr_t instruction) {
#ifdef __GLIBC__
    (void)instruction;
    return 1;
#else
    static uintptr_t start, end;
    if (!end) {
        char line[PATH_MAX + 128];
        int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        FILE *lines = fdopen(maps, "r");
        CHECK(maps >= 0 && lines);
        while (fgets(line, sizeof line, lines))
            if (strstr(line, getenv("LIBRARY_UNDER_TEST")) && strstr(line, " r-xp "))
                CHECK(sscanf(line, "%lx-%lx", &start, &end) == 2);
        fclose(lines);
        CHECK(end);
    }
    return is_raw || (start <= instruction && instruction < end);
#endif
}

static void on_step(int number, siginfo_t *what, void *context) {
    (void)number, (void)what;
    mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
    uintptr_t instruction = (uintptr_t)machine->gregs[REG_RIP];
    if (!may_fork_at(instruction) || !is_new(instruction)) return;
    long place = instructions++;
    CHECK(place < PLACES / 2);
    if (stride == 0 || place % stride != offset) return;
    int kept = errno, status = 0;
    pid_t pid = is_raw ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) : fork();
    if (pid == 0) {
        is_child = 1;
        machine->gregs[REG_EFL] &= ~TRAP;
        end_after(60);
        errno = kept;
        return;
    }
    if (pid < 0) _exit(3);
    while (waitpid(pid, &status, 0) != pid) {}
    if (status != 0) {
        dprintf(2, "the child of instruction %ld at %#llx ended with status %#x\n", place, machine->gregs[REG_RIP], status);
        _exit(4);
    }
    forks++;
    errno = kept;
}

/* Magazines fill, and grow: of more classes with larger steps. */
static void churn(size_t step) {
    void *blocks[BLOCKS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = 16 + (size_t)i * step % 3000;
            CHECK(blocks[i] = malloc(size));
            memset(blocks[i], 1, size);
        }
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
}

static void *work(void *unused) {
    churn(11);
    return unused;
}

static void *work_on(void *unused) {
    while (!over) {
        churn(11);
        malloc_trim(0);
        usleep(200);
    }
    return unused;
}

/* What the child does once the handler has returned. */
static void go_on(void) {
    pthread_t thread;
    churn(11);
    malloc_trim(0);
    if (!is_raw) {
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    malloc_trim(0);
}

/* Runs after the library's own destructor, whose key is older. */
static void at_end(void *unused) {
    (void)unused;
    clear_trap();
    if (!is_child) return;
    go_on();
#ifndef __GLIBC__
    /* Next, musl's pthread_exit takes musl's lock of all threads. The parent's main thread may have
       held it, in pthread_create, when the kernel copied it. */
    if (is_raw) _exit(0);
#endif
}

static void *stepped(void *unused) {
    CHECK(pthread_setspecific(last, &last) == 0);
    if (steps_the_end) {
        churn(1);
        set_trap();
        return unused;
    }
    set_trap();
    void *block = malloc(hidden(100));
    clear_trap();
    CHECK(block);
    free(block);
    if (!is_child) return unused;
    churn(11);
    /* The heap knows of its cache, the only one that has blocks. */
    CHECK(mallinfo2().fsmblks > 0);
    /* And once more at the end. */
    go_on();
    return unused;
}

static void live(void) {
    pthread_t thread;
    instructions = 0;
    memset(seen, 0, sizeof seen);
    CHECK(pthread_create(&thread, NULL, stepped, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 4 && served_by_neap("malloc"));
    end_after(550);
    steps_the_end = !strcmp(arguments[2], "end");
    is_raw = !strcmp(arguments[3], "clone");
    (void)may_fork_at(0);
    free(malloc(1));
    CHECK(pthread_key_create(&last, at_end) == 0);
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
    live();
    long all = instructions, a_life = atoi(arguments[1]) / LIVES + 1;
    CHECK(all > 100);
    pthread_t busy[BUSY];
    for (int i = 0; i < BUSY; i++) CHECK(pthread_create(&busy[i], NULL, work_on, NULL) == 0);
    stride = all / a_life + 1;
    for (int life = 0; life < LIVES; life++) {
        offset = stride * life / LIVES;
        live();
    }
    over = 1;
    for (int i = 0; i < BUSY; i++) CHECK(pthread_join(busy[i], NULL) == 0);
    CHECK(forks > 0);
    printf("%d forks at %ld instructions\n", (int)forks, all);
    return 0;
}
#endif
