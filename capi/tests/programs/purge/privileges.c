/* setgroups, setresgid and setresuid while the purge thread lives: the C library sends every thread
   a signal and waits until it has followed, so a thread that masked this signal would make them
   hang. */
#include "purge.h"
#include <grp.h>

enum { NOBODY = 65534 };

/* Whether a task has the new user and group, as all of its four. */
static int has_followed(int task) {
    char path[64], text[4096], wanted[2][64];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", task);
    CHECK(read_file(path, text, sizeof text) > 0);
    for (int i = 0; i < 2; i++) {
        snprintf(wanted[i], sizeof wanted[i], "\n%s:\t%d\t%d\t%d\t%d\n", i ? "Gid" : "Uid", NOBODY, NOBODY, NOBODY, NOBODY);
        if (!strstr(text, wanted[i])) return 0;
    }
    return strstr(text, "\nGroups:\t \n") != NULL;
}

int main(void) {
    if (geteuid() != 0) errno = EPERM, skip("needs root");
    with_purge_thread();
    alarm(240); /* one that hangs ends as SIGALRM */
    CHECK(setgroups(0, NULL) == 0);
    CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK(setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK(one_lives()); /* it was there all the time */
    CHECK(count_tasks(has_followed) == tasks());
    fill_and_empty();
    return 0;
}
