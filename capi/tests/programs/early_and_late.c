/* malloc in preinit functions, constructors, destructors and exit handlers. */
#include "check.h"

static char *early, *constructed;

static void before_all_constructors(int count, char **arguments, char **environment) {
    (void)count, (void)arguments, (void)environment;
    early = malloc(1000);
    memset(early, 'e', 1000);
}

__attribute__((section(".preinit_array"), used)) static void (*const preinit)(
    int, char **, char **) = before_all_constructors;

__attribute__((constructor(101))) static void constructor(void) {
    constructed = calloc(1, 1 << 20);
}

__attribute__((destructor(101))) static void destructor(void) {
    free(constructed);
    char *last = malloc(2000);
    CHECK(last);
    memset(last, 1, 2000);
    free(last);
    CHECK(write(1, "destroyed\n", 10) == 10);
}

static void at_exit(void) {
    early = realloc(early, 100000);
    CHECK(early && early[999] == 'e');
    free(early);
    CHECK(write(1, "exited\n", 7) == 7);
}

int main(void) {
    CHECK(served_by_neap("malloc") && early && constructed);
    CHECK(early[0] == 'e' && early[999] == 'e' && constructed[1 << 19] == 0);
    CHECK(atexit(at_exit) == 0);
    return 0;
}
