/* The library leaves no error of its own to dlerror: at its start, and when it is opened late. */
#include "../check.h"

int main(int argc, char **argv) {
    char *error = dlerror();
    if (error) {
        puts(error);
        return 1;
    }
    if (argc > 1) {
        CHECK(dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL));
        CHECK(dlerror() == NULL);
    }
    free(malloc(100));
    return 0;
}
