/* Tasks wait for memory half of the time, as the kernel reports it: in another group of the machine
   (argument 1: elsewhere), where free memory stays; with little memory left on the machine
   (scarce), or in the process's own group (own), where free memory goes back before its time. The
   test covers the kernel's files with its own, in a mount namespace of this process. */
#include "purge.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

static char group[128], folder[] = "/tmp/neap-stalls-XXXXXX";

static void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || write(file, text, strlen(text)) < 0) skip(path);
    close(file);
}

/* Covers a file of the kernel with one that holds `text`. */
static void cover(const char *path, const char *text) {
    static int number;
    char cover[64];
    snprintf(cover, sizeof cover, "%s/%d", folder, number++);
    put(cover, text);
    if (mount(cover, path, NULL, MS_BIND, NULL) != 0) skip(path);
}

static void move_to(const char *parent, const char *name) {
    char path[256], number[32];
    snprintf(path, sizeof path, "%s%s/cgroup.procs", parent, name);
    snprintf(number, sizeof number, "%d", getpid());
    put(path, number);
}

/* A control group of version 2 for this process alone, whose tasks wait. */
static void wait_in_own_group(const char *stalls) {
    const char *mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}, *parent = mounts[0];
    char path[256];
    snprintf(path, sizeof path, "%s/cgroup.procs", parent);
    if (access(path, W_OK) != 0) parent = mounts[1];
    snprintf(group, sizeof group, "%s/neap-stalls-%d", parent, getpid());
    if (mkdir(group, 0755) != 0) skip(group);
    move_to(group, "");
    snprintf(path, sizeof path, "%s/memory.pressure", group);
    cover(path, stalls);
}

/* In the parent, once the child has ended. */
static void clear(void) {
    char path[96];
    for (int number = 0; number < 4; number++) {
        snprintf(path, sizeof path, "%s/%d", folder, number);
        unlink(path);
    }
    rmdir(folder);
}

static int is_given_back(void) {
    /* Large blocks come and go, so that Neap reads the files of the group and the machine. */
    free(malloc(MIB));
    return resident() < FILLED / 2;
}

static void child(const char *where) {
    const char *stalls = "some avg10=50.00 avg60=50.00 avg300=50.00 total=1000000\n"
                         "full avg10=50.00 avg60=50.00 avg300=50.00 total=1000000\n";
    int scarce = !strcmp(where, "scarce");
    if (syscall(SYS_unshare, CLONE_NEWNS) != 0) skip("unshare");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) skip("a private mount");
    cover("/proc/pressure/memory", stalls);
    cover("/proc/meminfo", scarce ? "MemTotal: 24000000 kB\nMemFree: 100 kB\nMemAvailable: 300000 kB\n"
                                  : "MemTotal: 24000000 kB\nMemFree: 100 kB\nMemAvailable: 20000000 kB\n");
    if (!strcmp(where, "own")) wait_in_own_group(stalls);
    fill_and_empty();
    if (strcmp(where, "elsewhere")) {
        CHECK(until(is_given_back));
    } else {
        /* Longer than the interval between two readings. */
        for (int waited = 0; waited < 3000; waited += 100) nap(100), CHECK(!is_given_back());
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    CHECK(mkdtemp(folder) != NULL);
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        child(arguments[1]);
        return 0;
    }
    int status;
    snprintf(group, sizeof group, "/sys/fs/cgroup/unified/neap-stalls-%d", process);
    CHECK(waitpid(process, &status, 0) == process);
    if (rmdir(group) != 0) {
        snprintf(group, sizeof group, "/sys/fs/cgroup/neap-stalls-%d", process);
        rmdir(group);
    }
    clear();
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}
