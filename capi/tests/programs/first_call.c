/* A second preloaded library whose IFUNC resolver and constructor call every
   kind of entry point before the allocator's own constructors have run. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void try_all(void) {
    char *block = malloc(100);
    block = realloc(block, 100000);
    char *zeros = calloc(100, 100);
    if (!block || !zeros || zeros[5000] != 0) _exit(70);
    free(block), free(zeros);
    void *self = dlopen(NULL, RTLD_NOW);
    if (!self || !dlsym(self, "malloc")) _exit(71);
    dlclose(self);
}

__attribute__((constructor(101))) static void first(void) {
    try_all();
    if (write(1, "first\n", 6) != 6) _exit(72);
}
