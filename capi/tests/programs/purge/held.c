/* The purge thread ends for a call that changes the calling thread alone. Argument 1: `sleeps`:
   what was freed just before goes back, although no other call of the heap follows; or `requests`:
   such a call for each of many requests starts a thread every 20 ms at most. */
#include "purge.h"
#include <linux/capability.h>
#include <sys/syscall.h>

enum { REQUESTS = 400, APART_MS = 20, SLACK = 20 };

static long now_ms(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Keeps what the thread has. */
static void keep_rights(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct rights[2];
    CHECK(syscall(SYS_capget, &header, rights) == 0);
    CHECK(syscall(SYS_capset, &header, rights) == 0);
}

static void sleeps(void) {
    size_t before = resident();
    with_purge_thread();
    fill_and_empty();
    goal = before + ALLOWANCE;
    CHECK(!at_goal());
    keep_rights();
    CHECK(none_lives() && at_goal());
}

static void requests(void) {
    long threads = 0, began;
    with_purge_thread();
    began = now_ms();
    for (int request = 0; request < REQUESTS; request++) {
        keep_rights();
        empty(fill(MIB));
        nap(1);
        threads += one_lives();
    }
    CHECK(threads <= (now_ms() - began) / APART_MS + SLACK);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    alarm(240);
    if (!strcmp(arguments[1], "sleeps")) sleeps();
    else requests();
    return 0;
}
