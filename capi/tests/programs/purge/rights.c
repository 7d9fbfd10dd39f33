/* A thread gives up rights that the C library takes from the calling thread only. The purge thread
   from before keeps none of them. Argument 1: how. */
#include "purge.h"
#include <linux/capability.h>
#include <sched.h>

static struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
static struct __user_cap_data_struct none[2];
static int before, has_met;

/* Declared by no header of the C library. */
static int drop(void) {
    int (*function)(void *, const void *);
    *(void **)&function = dlsym(RTLD_DEFAULT, "capset");
    CHECK(function != NULL);
    return function(&header, none);
}

static int drop_by_number(void) {
    return (int)syscall(SYS_capset, &header, none);
}

/* As root, without PR_SET_NO_NEW_PRIVS: no file may be run any more. */
static int confine(void) {
    struct { uint64_t files; } rules = {1};
    int set = (int)syscall(444 /* landlock_create_ruleset */, &rules, sizeof rules, 0);
    if (set < 0) skip("Landlock");
    int result = (int)syscall(446 /* landlock_restrict_self */, set, 0);
    close(set);
    return result;
}

static int enter_children(void) {
    return unshare(CLONE_NEWPID);
}

static int enter_children_by_number(void) {
    return (int)syscall(SYS_unshare, CLONE_NEWPID);
}

static const struct {
    const char *name;
    int (*act)(void);
    /* The purge thread is another one afterwards. */
    int renews;
} calls[] = {
    {"capset", drop, 1},
    {"capset-by-number", drop_by_number, 1},
    {"landlock", confine, 1},
    {"children", enter_children, 0},
    {"children-by-number", enter_children_by_number, 0},
};

static int has_no_capability(int task) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/status", task);
    CHECK(read_file(path, text, sizeof text) > 0);
    return strstr(text, "\nCapEff:\t0000000000000000\n") != NULL;
}

static int is_before(int task) {
    if (is_purge_thread(task)) has_met = task;
    return task == before;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (geteuid() != 0) errno = EPERM, skip("needs root");
    for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
        if (strcmp(calls[call].name, arguments[1])) continue;
        with_purge_thread();
        alarm(240);
        count_tasks(is_before);
        before = has_met;
        if (calls[call].act() != 0) skip(arguments[1]);
        CHECK(count_tasks(is_before) == !calls[call].renews);
        fill_and_empty();
        CHECK(until(one_lives));
        if (!strncmp(arguments[1], "capset", 6)) CHECK(count_tasks(has_no_capability) == tasks());
        return 0;
    }
    CHECK(!"a call of this name");
}
