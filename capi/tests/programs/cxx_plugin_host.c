/* A C program that loads a C++ plugin with RTLD_LOCAL; bad_alloc must reach the plugin's catch.
   Argument 1: the plugin. Argument 2, if any: its C++ runtime, under another file name. */
#include "check.h"

int main(int count, char **arguments) {
    CHECK(count >= 2 && served_by_neap("malloc"));
    if (count > 2) CHECK(dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL));
    CHECK(!dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv"));
    void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(plugin);
    int (*run)(unsigned long) = (int (*)(unsigned long))dlsym(plugin, "plugin_runs_out_of_memory");
    CHECK(run && run(hidden(PTRDIFF_MAX) - 4096) == 1);
    return 0;
}
