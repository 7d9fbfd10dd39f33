/* A library for LD_AUDIT, with which the loader allocates before Neap reads its options. */
#define _GNU_SOURCE
#include <link.h>
#include <stdlib.h>
#include <string.h>

static void allocate(size_t size) {
    free(malloc(size));
}

unsigned la_version(unsigned version) {
    allocate(100);
    return version;
}

unsigned la_objopen(struct link_map *object, Lmid_t space, uintptr_t *cookie) {
    (void)space, (void)cookie;
    free(strdup(object->l_name ? object->l_name : ""));
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

void la_activity(uintptr_t *cookie, unsigned flag) {
    (void)cookie, (void)flag;
    allocate(3000);
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned number, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name) {
    (void)number, (void)from, (void)to, (void)flags, (void)name;
    return symbol->st_value;
}
