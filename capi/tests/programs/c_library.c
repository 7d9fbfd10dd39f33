/* The C library's own use of memory: blocks that it allocates and the program frees, its loader, the stacks of its threads,
   the processes that it starts, and its locks around a fork. Takes the path of a library. Prints nothing. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <netdb.h>
#include <pthread.h>
#include <regex.h>
#include <search.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <wchar.h>

extern char **environ;
enum { THREADS = 4, ROUNDS = 200 };

/* Whatever is not a block of Neap's aborts in `free`. */
static void blocks_of_the_c_library(void) {
    char *text = NULL, *directory = realpath("/", NULL);
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    CHECK(directory && stream);
    for (int i = 0; i < 10000; i++) CHECK(fprintf(stream, "%d\n", i) > 0);
    CHECK(fclose(stream) == 0 && bytes == 48890);
    char *line = NULL;
    size_t room = 0;
    FILE *back = fmemopen(text, bytes, "r");
    CHECK(back && setvbuf(back, NULL, _IOFBF, 1 << 16) == 0);
    for (int i = 0; i < 10000; i++) CHECK(getline(&line, &room, back) > 0 && atoi(line) == i);
    CHECK(fclose(back) == 0);
    char *copy = strdup(text), *made = NULL;
    CHECK(copy && asprintf(&made, "%s%s", copy, copy) == 2 * (int)bytes);
    wchar_t *wide = wcsdup(L"wide");
    regex_t pattern;
    CHECK(wide && regcomp(&pattern, "^(a|b)*c{2,40}$", REG_EXTENDED) == 0);
    CHECK(regexec(&pattern, "abababcc", 0, NULL, 0) == 0);
    regfree(&pattern);
    glob_t found;
    CHECK(glob("/proc/self/*", 0, NULL, &found) == 0 && found.gl_pathc > 10);
    globfree(&found);
    struct dirent **entries;
    int count = scandir("/proc/self", &entries, NULL, alphasort);
    CHECK(count > 10);
    while (count > 0) free(entries[--count]);
    struct addrinfo *address;
    CHECK(getaddrinfo("127.0.0.1", "80", NULL, &address) == 0);
    freeaddrinfo(address);
    for (int i = 0; i < 100; i++) {
        char name[20];
        snprintf(name, sizeof name, "NAME_%d", i);
        CHECK(setenv(name, copy, 1) == 0);
        CHECK(unsetenv(name) == 0);
    }
    for (void *each[] = {line, text, copy, made, wide, directory, entries}, **next = each; next < each + 7; next++) free(*next);
}

static void loader(const char *library) {
    for (int i = 0; i < 20; i++) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        CHECK(handle && !dlsym(handle, "no such name") && dlerror());
        CHECK(!dlopen("/no/such/library.so", RTLD_NOW) && dlerror());
        CHECK(dlclose(handle) == 0);
    }
}

static void processes(void) {
    char *arguments[] = {"true", NULL};
    for (int i = 0; i < 5; i++) {
        pid_t child;
        int status;
        CHECK(posix_spawnp(&child, "true", NULL, NULL, arguments, environ) == 0);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(system("true") == 0);
        FILE *pipe = popen("echo", "r");
        CHECK(pipe && fgetc(pipe) == '\n' && pclose(pipe) == 0);
        child = vfork();
        if (child == 0) {
            execvp("true", arguments);
            _exit(1);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
}

static int stop;

/* Each round signals every thread, and waits for it. */
static void *identities(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) CHECK(setuid(getuid()) == 0);
    return unused;
}

static void *streams(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        FILE *stream = fopen("/dev/null", "w");
        CHECK(stream && fprintf(stream, "%d", 1) == 1);
        fflush(NULL);
        CHECK(fclose(stream) == 0);
    }
    return unused;
}

static void *nothing(void *block) {
    free(block);
    return malloc(100);
}

static void *starts(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        pthread_t thread;
        void *block;
        CHECK(pthread_create(&thread, NULL, nothing, malloc(50)) == 0);
        CHECK(pthread_join(thread, &block) == 0);
        free(block);
    }
    return unused;
}

static void forks(void) {
    void *(*const work[THREADS])(void *) = {identities, streams, starts, starts};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work[i], NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            free(nothing(malloc(3000)));
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    alarm(240);
    blocks_of_the_c_library();
    loader(arguments[1]);
    processes();
    forks();
    return 0;
}
