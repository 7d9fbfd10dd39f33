/* Under a small limit: allocate until NULL with ENOMEM, free, go on; more than once,
   with several sizes, and in a thread that was started when nothing was left. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>

struct node {
    struct node *next;
};

static const size_t sizes[] = {16, 100, 1000, 10000, 100000, 1 << 20, 16};

static struct node *take_all(size_t size, size_t *count) {
    struct node *list = NULL, *node;
    *count = 0;
    errno = 0;
    while ((node = malloc(size)) != NULL) {
        memset(node, 0x11, size);
        node->next = list;
        list = node;
        CHECK(++*count * size < 200u << 20); /* the limit holds */
    }
    CHECK(errno == ENOMEM);
    return list;
}

static void give_back(struct node *list) {
    while (list) {
        struct node *next = list->next;
        free(list);
        list = next;
    }
}

static void *thread_without_memory(void *unused) {
    /* Its cache cannot be had: it must not crash, and must serve what was freed. */
    void *blocks[64];
    for (int i = 0; i < 64; i++) blocks[i] = malloc(100);
    for (int i = 0; i < 64; i++) free(blocks[i]);
    return unused;
}

static void a_thread_starts_when_nothing_is_left(void) {
    pthread_attr_t attributes;
    static char stack[1 << 18] __attribute__((aligned(4096)));
    pthread_t thread;
    size_t count;
    struct node *list = take_all(100, &count);
    for (int i = 0; i < 64; i++) {
        struct node *next = list->next;
        free(list);
        list = next;
    }
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, sizeof stack) == 0);
    if (pthread_create(&thread, &attributes, thread_without_memory, NULL) == 0)
        CHECK(pthread_join(thread, NULL) == 0);
    give_back(list);
}

static void aligned_and_zeroed_fail_and_recover(void) {
    errno = 0, CHECK(!calloc(hidden(1) << 10, 1 << 20) && errno == ENOMEM);
    errno = 0, CHECK(!aligned_alloc(1 << 20, hidden(1) << 30) && errno == ENOMEM);
    void *block = malloc(1000);
    errno = 0, CHECK(!realloc(block, hidden(1) << 30) && errno == ENOMEM);
    free(block);
    block = calloc(1, 1 << 20);
    CHECK(block);
    free(block);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    int which = !strcmp(arguments[1], "data") ? RLIMIT_DATA : RLIMIT_AS;
    struct rlimit limit;
    CHECK(getrlimit(which, &limit) == 0 && limit.rlim_cur == 64 << 20);
    size_t least = 8 << 20;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t blocks;
        struct node *list = take_all(sizes[i], &blocks);
        CHECK(blocks * sizes[i] >= least); /* what was freed can be had again, as any size */
        give_back(list);
    }
    a_thread_starts_when_nothing_is_left();
    aligned_and_zeroed_fail_and_recover();
    CHECK(served_by_neap("malloc"));
    return 0;
}
