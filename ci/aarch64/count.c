/* Calls each entry point a hundred times, between two marks that ci/aarch64/count.sh finds in
 * qemu's log of executed instructions. Linked without position independence, so that the marks keep
 * the addresses of the file. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLS = 100 };

/* function(a, b); only the call itself stands between the marks. */
void *marked_call(void *function, size_t a, size_t b);
__asm__(".text\n.globl marked_call, mark_call, mark_return\n"
        "marked_call:\n\tstp x29, x30, [sp, #-16]!\n\tmov x29, sp\n\tmov x9, x0\n\tmov x0, x1\n\tmov x1, x2\n"
        "mark_call:\n\tblr x9\n"
        "mark_return:\n\tldp x29, x30, [sp], #16\n\tret\n"
        ".globl only_returns\nonly_returns:\n\tret\n");
void only_returns(void);

static void *found(const char *name) {
    void *function = dlsym(RTLD_DEFAULT, name);
    if (!function) {
        fprintf(stderr, "no library here has %s\n", name);
        exit(1);
    }
    return function;
}

int main(void) {
    void *(*new)(size_t) = (void *(*)(size_t))found("_Znwm");
    void (*delete)(void *) = (void (*)(void *))found("_ZdlPv");
    for (int i = 0; i < CALLS; i++)
        marked_call((void *)only_returns, 0, 0);
    for (int i = 0; i < CALLS; i++)
        free(marked_call(found("malloc"), 64, 0));
    for (int i = 0; i < CALLS; i++)
        marked_call(found("free"), (size_t)malloc(64), 0);
    for (int i = 0; i < CALLS; i++)
        free(marked_call(found("calloc"), 1, 64));
    for (int i = 0; i < CALLS; i++)
        free(marked_call(found("realloc"), (size_t)malloc(60), 64));
    for (int i = 0; i < CALLS; i++)
        delete(marked_call(found("_Znwm"), 64, 0));
    for (int i = 0; i < CALLS; i++)
        marked_call(found("_ZdlPv"), (size_t)new(64), 0);
    return 0;
}
