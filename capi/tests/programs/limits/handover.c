/* Takes memory, frees it, and at once uses as much in another way, three times. Argument 1 names
   the way, argument 2 is the number of bytes, and argument 3 the size of a block. With "hold" it
   only takes the memory, and waits for the end of its standard input. */
#include "../purge/purge.h"
#include <sys/mman.h>
#include <sys/wait.h>

static size_t bytes, block;

static void hold(void) {
    char byte, *memory = malloc(bytes);
    CHECK(memory);
    memset(memory, 1, bytes);
    CHECK(write(1, "held\n", 5) == 5);
    CHECK(read(0, &byte, 1) == 0);
}

static void take_and_free(void) {
    size_t count = bytes / block;
    void **blocks = malloc(count * sizeof *blocks);
    CHECK(blocks);
    for (size_t i = 0; i < count; i++) {
        CHECK((blocks[i] = malloc(block)));
        memset(blocks[i], 1, block);
    }
    for (size_t i = 0; i < count; i++) free(blocks[i]);
    free(blocks);
}

static void use_mapping(void) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 1, bytes);
    CHECK(munmap(memory, bytes) == 0);
}

static void use_file(void) {
    static char page[1 << 16];
    int file = memfd_create("handover", 0);
    for (size_t i = 0; i < bytes; i += sizeof page) CHECK(write(file, page, sizeof page) == sizeof page);
    close(file);
}

static void use_child(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        use_mapping();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    bytes = strtoul(arguments[2], NULL, 10), block = strtoul(arguments[3], NULL, 10);
    if (strcmp(arguments[1], "hold") == 0) return hold(), 0;
    for (int round = 0; round < 3; round++) {
        take_and_free();
        if (strcmp(arguments[1], "mapping") == 0) use_mapping();
        else if (strcmp(arguments[1], "file") == 0) use_file();
        else use_child();
    }
    return 0;
}
