/* A program with a malloc of its own, which is not ready before main. The loader calls it
   nevertheless, but frees nothing. */
#include "../check.h"
#include <sys/mman.h>
#include <sys/wait.h>

static char heap[1 << 20];
static size_t used;
static int is_ready, early_frees;

void *malloc(size_t size) {
    void *block = heap + used;
    used += (size + 15) & ~(size_t)15;
    return block;
}
void free(void *block) { early_frees += block && !is_ready; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *block, size_t size) {
    void *larger = malloc(size);
    return block ? memcpy(larger, block, size) : larger;
}

int main(void) {
    int status;
    is_ready = 1;
    CHECK(early_frees == 0);
    CHECK(dlerror() == NULL);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(7);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return 0;
}
