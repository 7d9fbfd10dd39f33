/* Loads a plugin with the mode given and frees its blocks, and the reverse. */
#include "check.h"

static int mode_of(const char *word) {
    if (!strcmp(word, "deepbind")) return RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
    if (!strcmp(word, "lazy")) return RTLD_LAZY | RTLD_GLOBAL;
    return RTLD_NOW | RTLD_LOCAL;
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("dlopen"));
    for (int round = 0; round < 20; round++) {
        void *plugin = dlopen(arguments[1], mode_of(arguments[2]));
        CHECK(plugin);
        char *(*gives)(size_t) = (char *(*)(size_t))dlsym(plugin, "plugin_gives");
        void (*takes)(void *) = (void (*)(void *))dlsym(plugin, "plugin_takes");
        char *block = gives(1000);
        CHECK(block[999] == 'g');
        free(realloc(block, 5000));
        takes(malloc(100));
        CHECK(dlclose(plugin) == 0);
    }
    CHECK(!dlopen("/nowhere/at/all.so", RTLD_NOW) && dlerror());
    return 0;
}
