/* A program with a sanitizer whose runtime replaces malloc: it runs without the library, with its
   own arguments, and children of it do as well. */
#include "check.h"

int main(int count, char **arguments) {
    CHECK(!served_by_neap("malloc"));
    CHECK(count == 3 && !strcmp(arguments[1], "a b") && !strcmp(arguments[2], ""));
    const char *preload = getenv("LD_PRELOAD");
    CHECK(!preload || !strstr(preload, "libneap"));
    char *volatile block = malloc(100);
    memset(block, 1, 100);
    free(block);
    return 0;
}
