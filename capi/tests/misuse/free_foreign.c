/* A block of the C library's own malloc. */
#include "misuse.h"
#include <dlfcn.h>

int main(void) {
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    void *(*foreign)(size_t) = (void *(*)(size_t))dlsym(libc, "malloc");
    free(foreign(64)); /* HERE */
    surface();
}
