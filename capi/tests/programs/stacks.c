/* Stacks from C: sizes, contents, errno, threads, fork. */
#include "check.h"
#include "../../include/neap.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void sizes(void) {
    neap_stack_t stack = {(void *)1, (void *)2, 3};
    errno = 77;
    CHECK(neap_stack_alloc(hidden(0), &stack) == EINVAL);
    CHECK(neap_stack_alloc((8 << 20) + 1, &stack) == EINVAL);
    CHECK(stack.top == (void *)1 && stack.limit == (void *)2 && stack.bytes == 3);
    for (size_t bytes = 8 << 10; bytes <= 8 << 20; bytes += 40 << 10) {
        CHECK(neap_stack_alloc(bytes, &stack) == 0);
        CHECK((char *)stack.limit + stack.bytes == stack.top);
        CHECK(multiple_of(stack.top, (size_t)sysconf(_SC_PAGESIZE)));
        memset(stack.limit, 1, stack.bytes);
        neap_stack_set_owner(&stack, "sizes");
        neap_stack_set_owner(&stack, NULL);
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
#ifdef __x86_64__
        /* The red zone keeps the highest page. */
        int gives_back = stack.bytes > page;
#else
        int gives_back = stack.bytes >= page;
#endif
        CHECK((neap_stack_trim(&stack, stack.top) > 0) == gives_back);
        neap_stack_free(&stack);
    }
    neap_stack_t none = {0};
    neap_stack_free(&none);
    neap_stack_free(NULL);
    CHECK(errno == 77);
}

static void *on_stack(void *expected) {
    neap_stack_t *stack = expected;
    char local[20000];
    memset(local, 1, sizeof local);
    CHECK(local > (char *)stack->limit && local < (char *)stack->top);
    free(malloc(local[100] * 1000));
    return expected;
}

static void threads(void) {
    for (int round = 0; round < 50; round++) {
        neap_stack_t stack;
        pthread_attr_t attributes;
        pthread_t thread;
        void *result;
        CHECK(neap_stack_alloc(256 << 10, &stack) == 0);
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstack(&attributes, stack.limit, stack.bytes) == 0);
        CHECK(pthread_create(&thread, &attributes, on_stack, &stack) == 0);
        CHECK(pthread_join(thread, &result) == 0 && result == &stack);
        pthread_attr_destroy(&attributes);
        neap_stack_free(&stack);
    }
}

/* Whether a child that writes there dies of SIGSEGV, or of SIGBUS on an older kernel. */
static int faults(char *address) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        *(volatile char *)address = 1;
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

static void guards(void) {
    size_t sizes[] = {8 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        neap_stack_t stack;
        CHECK(neap_stack_alloc(sizes[i], &stack) == 0);
        CHECK(faults((char *)stack.limit - 1));
        CHECK(!faults(stack.limit));
        neap_stack_free(&stack);
    }
}

/* What a coroutine maps over pages of its stack, or takes away from it, is not its successor's. */
static void mapped_over(void) {
    enum { BYTES = 64 << 10 };
    static char text[BYTES];
    int file = memfd_create("stack", 0);
    CHECK(file >= 0);
    memset(text, 0x5a, sizeof text);
    CHECK(write(file, text, sizeof text) == sizeof text);
    for (size_t bytes = 2 * BYTES; bytes <= 1 << 20; bytes *= 2) {
        for (int unmaps = 0; unmaps < 2; unmaps++) {
            neap_stack_t stack, next;
            CHECK(neap_stack_alloc(bytes, &stack) == 0);
            char *over = (char *)stack.top - BYTES;
            if (unmaps) CHECK(munmap(over, BYTES) == 0);
            else CHECK(mmap(over, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == over);
            neap_stack_free(&stack);
            CHECK(neap_stack_alloc(bytes, &next) == 0);
            memset(next.limit, 1, next.bytes);
            neap_stack_free(&next);
            CHECK(pread(file, text, sizeof text, 0) == sizeof text);
            for (int at = 0; at < BYTES; at++) CHECK(text[at] == 0x5a);
        }
    }
    close(file);
}

int main(void) {
    CHECK(served_by_neap("neap_stack_alloc"));
    sizes();
    threads();
    guards();
    mapped_over();
}
