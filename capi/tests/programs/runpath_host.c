/* Loads a plugin by its bare name: found only through this program's own
   RUNPATH, so only if the loader sees this program as dlopen's caller. */
#include "check.h"

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("dlopen"));
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    CHECK(plugin);
    CHECK(dlclose(plugin) == 0);
    return 0;
}
