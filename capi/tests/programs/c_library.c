/* The C library's own use of memory: blocks that it allocates and the program frees, or that it
   frees itself, its loader, the stacks of its threads, the processes that it starts, and its locks
   around a fork. Takes the path of a library. Prints nothing. */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <iconv.h>
#include <ifaddrs.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <wchar.h>
#include <wordexp.h>

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

static int compare(const void *a, const void *b) { return strcmp(a, b); }
static int visit(const char *path, const struct stat *status, int type, struct FTW *place) {
    return path && status && type >= 0 && place ? 0 : 1;
}

static void collections(void) {
    void *root = NULL;
    static char keys[1000][8];
    for (int i = 0; i < 1000; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i * 7919 % 1000);
        CHECK(tsearch(keys[i], &root, compare));
    }
    for (int i = 0; i < 500; i++) CHECK(tdelete(keys[i], &root, compare));
    while (root) CHECK(tdelete(*(void **)root, &root, compare));
    CHECK(hcreate(100));
    for (int i = 0; i < 60; i++) CHECK(hsearch((ENTRY){keys[i], keys[i]}, ENTER));
    hdestroy();
}

/* The C library keeps these blocks, and frees them by functions of its own. */
static void objects_of_the_c_library(void) {
    char *place = getcwd(NULL, 0), *name = tempnam("/tmp", "neap"), *line = NULL;
    size_t room = 0;
    CHECK(place && name);
    free(place), free(name);
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory);
    while (readdir(directory)) continue;
    CHECK(closedir(directory) == 0);
    CHECK(nftw("/proc/self/fdinfo", visit, 4, FTW_PHYS) == 0);
    FILE *users = fopen("/etc/passwd", "r");
    CHECK(users && getdelim(&line, &room, ':', users) > 0 && fclose(users) == 0);
    free(line);
    CHECK(getpwuid(0) && getgrgid(0));
    endpwent(), endgrent();
    locale_t plain = newlocale(LC_ALL_MASK, "C", 0);
    CHECK(plain);
#ifdef __GLIBC__
    /* musl 1.2.2 allocates here by the program's malloc, and frees by its own. It crashes under any
       other malloc. */
    locale_t other = duplocale(plain);
    CHECK(other);
    freelocale(other);
#endif
    freelocale(plain);
    iconv_t conversion = iconv_open("UCS-4LE", "UTF-8");
    CHECK(conversion != (iconv_t)-1 && iconv_close(conversion) == 0);
    wordexp_t words;
    CHECK(wordexp("one $HOME \"two three\"", &words, 0) == 0 && words.we_wordc >= 2);
    wordfree(&words);
    struct ifaddrs *interfaces;
    if (getifaddrs(&interfaces) == 0) freeifaddrs(interfaces);
    char keyword[30];
    snprintf(keyword, sizeof keyword, "/neap-%d", (int)getpid());
    sem_t *semaphore = sem_open(keyword, O_CREAT, 0600, 1);
    CHECK(semaphore != SEM_FAILED || errno == ENOSYS || errno == ENOENT || errno == EACCES);
    if (semaphore != SEM_FAILED) CHECK(sem_close(semaphore) == 0 && sem_unlink(keyword) == 0);
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    for (int i = 0; i < 50; i++) CHECK(posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", O_RDONLY, 0) == 0);
    CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
}

static void expired(union sigval post) { sem_post(post.sival_ptr); }

/* A thread that the C library starts, and blocks that it keeps for the thread. */
static void timers(void) {
    sem_t done;
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expired, .sigev_value.sival_ptr = &done};
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    CHECK(sem_init(&done, 0, 0) == 0 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
    while (sem_wait(&done) != 0) CHECK(errno == EINTR);
    CHECK(timer_delete(timer) == 0);
}

/* More handlers than the C library has room for without an allocation. It calls each. */
enum { HANDLERS = 500 };
static int handlers;
static void at_exit(void) {
    void *block = malloc(hidden(100));
    CHECK(block);
    free(block);
    handlers++;
}
static void last(void) { CHECK(handlers == HANDLERS); }

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
    CHECK(atexit(last) == 0);
    for (int i = 0; i < HANDLERS; i++) CHECK(atexit(at_exit) == 0);
    blocks_of_the_c_library();
    objects_of_the_c_library();
    collections();
    timers();
    loader(arguments[1]);
    processes();
    forks();
    return 0;
}
