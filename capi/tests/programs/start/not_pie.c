/* Code at fixed addresses takes the address of malloc. The purge thread is there before main. */
#include "../check.h"
#include <sys/stat.h>

int main(void) {
    struct stat tasks;
    void *(*volatile own)(size_t) = malloc;
    void *block;
    CHECK(stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 2 + 2);
    CHECK((block = own(100)) != NULL);
    free(block);
    return 0;
}
