/* A plugin that allocates in its constructor and hands blocks both ways. */
#include <stdlib.h>
#include <string.h>

static char *kept;

__attribute__((constructor)) static void arrive(void) {
    kept = calloc(1, 5000);
}

__attribute__((destructor)) static void leave(void) {
    free(kept);
}

char *plugin_gives(size_t size) {
    return memset(malloc(size), 'g', size);
}

void plugin_takes(void *block) {
    free(block);
}
