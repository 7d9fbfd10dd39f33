/* A program of one thread relies on the kernel's promise that a new descriptor has the lowest free
   number. So the purge thread, which works meanwhile, opens no file. */
#include "purge.h"

int main(void) {
    with_purge_thread();
    int spare = fcntl(1, F_DUPFD_CLOEXEC, 60);
    CHECK(spare >= 60);
    time_t end = time(NULL) + 5; /* files are read once a second */
    for (unsigned round = 0; time(NULL) < end; round++) {
        close(1);
        int opened = dup(spare);
        if (opened != 1) dprintf(2, "got %d in round %u\n", opened, round);
        CHECK(opened == 1);
        if (round % 64 == 0) empty(fill(64 << 10));
        if (round % 4096 == 0) empty(fill(8 * MIB));
    }
    CHECK(one_lives());
    return 0;
}
