/* A program of all that makes the heap call the C library or the kernel: blocks of many sizes,
   threads, forks, statistics, mappings. With an argument it frees a block twice at last. */
#include "../check.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void allocate(void) {
    void *blocks[64];
    for (size_t size = 16; size <= (size_t)8 << 20; size *= 2) {
        for (int i = 0; i < 64; i++) blocks[i] = size <= 65536 || i < 2 ? calloc(1, size) : NULL;
        for (int i = 0; i < 2; i++) CHECK(blocks[i] = realloc(blocks[i], size * 2));
        for (int i = 0; i < 64; i++) free(blocks[i]);
    }
}

static void *run(void *unused) {
    allocate();
    return unused;
}

static void handle(int signal) { (void)signal; }

int main(int argc, char **argv) {
    int status;
    pthread_t threads[4];
    struct sigaction action = {.sa_handler = handle};
    allocate();
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, run, NULL) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    char *mapped = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && munmap(mapped, 8192) == 0);
    malloc_trim(0);
    FILE *nothing = fopen("/dev/null", "w");
    CHECK(nothing && malloc_info(0, nothing) == 0 && fclose(nothing) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        allocate();
        exit(7);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    if (argc > 1) {
        char *volatile block = malloc(100);
        free(block);
        free(block);
        for (int i = 0; i < 100000; i++) free(malloc(100));
    }
    return 0;
}
