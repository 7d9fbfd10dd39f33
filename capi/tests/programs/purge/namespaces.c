/* unshare and setns while the purge thread lives: some of them the kernel refuses to a process of
   two threads. Argument 1: which. Tried before in a child, which says whether they are allowed
   here. */
#include "purge.h"
#include <sched.h>

static int enter(const char *path, int kind) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    int result = setns(file, kind), error = errno;
    close(file);
    errno = error;
    return result;
}

static int unshare_user(void) {
    return unshare(CLONE_NEWUSER);
}

static int unshare_user_by_number(void) {
    return (int)syscall(SYS_unshare, CLONE_NEWUSER);
}

static int unshare_mounts(void) {
    return unshare(CLONE_NEWNS);
}

static int unshare_files(void) {
    return unshare(CLONE_FILES | CLONE_FS);
}

static int enter_names(void) {
    return enter("/proc/self/ns/uts", CLONE_NEWUTS);
}

static int enter_mounts(void) {
    return enter("/proc/self/ns/mnt", CLONE_NEWNS);
}

/* A user namespace of another process: no process may enter its own. */
static int enter_user(void) {
    int ready[2], end[2], result, error;
    char byte, path[64];
    CHECK(pipe2(ready, O_CLOEXEC) == 0 && pipe2(end, O_CLOEXEC) == 0);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        byte = syscall(SYS_unshare, CLONE_NEWUSER) == 0;
        close(end[1]);
        CHECK(write(ready[1], &byte, 1) == 1);
        CHECK(read(end[0], &byte, 1) == 0); /* until the parent is done */
        syscall(SYS_exit_group, 0);
    }
    CHECK(pid > 0 && read(ready[0], &byte, 1) == 1);
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    result = byte ? enter(path, CLONE_NEWUSER) : -1, error = errno;
    for (int i = 0; i < 2; i++) close(ready[i]), close(end[i]);
    ended_well(pid);
    errno = error;
    return result;
}

static const struct {
    const char *name;
    int (*act)(void);
} calls[] = {
    {"unshare-user", unshare_user}, {"unshare-mounts", unshare_mounts}, {"unshare-files", unshare_files},
    {"unshare-by-number", unshare_user_by_number},
    {"setns-uts", enter_names},     {"setns-mounts", enter_mounts},     {"setns-user", enter_user},
};

/* In a child, which has one thread: 0, or why not. */
static int refused(int (*act)(void)) {
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(act() == 0 ? 0 : errno);
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
        if (strcmp(calls[call].name, arguments[1])) continue;
        if ((errno = refused(calls[call].act))) skip(arguments[1]);
        with_purge_thread();
        alarm(240);
        CHECK(calls[call].act() == 0);
        fill_and_empty();
        CHECK(until(one_lives)); /* it comes again */
        return 0;
    }
    CHECK(!"a call of this name");
}
