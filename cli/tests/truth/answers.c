// Programs whose memory is known, one for each first argument.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KIB = 1 << 10, BLOCKS = 240 << 4, TICK_US = 500 };

static char *held[BLOCKS];

// Defines a function that allocates and touches a block, so that each such function is a place.
#define PLACE(name)                                       \
    __attribute__((noinline)) static char *name(size_t bytes) { \
        char *block = malloc(bytes);                      \
        memset(block, 1, bytes);                          \
        return block;                                     \
    }

PLACE(login)
PLACE(load)
PLACE(burst)
PLACE(request)

static void churn(void) {
    for (int i = 0; i < 100; i++) {
        free(request(2000));
        __asm__ volatile("" ::: "memory");
    }
}

// 240 MiB, one block after the other.
static void ramp(void) {
    for (int i = 0; i < BLOCKS; i++) {
        held[i] = login(64 * KIB);
        usleep(TICK_US);
    }
}

static void release(void) {
    for (int i = 0; i < BLOCKS; i++) {
        free(held[i]);
        held[i] = NULL;
    }
}

// A leak of 30 MiB beside 40 MiB of data and churn, until a signal ends the program.
static void leak(void) {
    for (int i = 0; i < 640; i++)
        held[i] = load(64 * KIB);
    for (int i = 0; i < 3072; i++) {
        login(10 * KIB);
        churn();
        usleep(TICK_US);
    }
    signal(SIGINT, SIG_DFL); /* a shell's background job ignores it */
    raise(SIGINT);
}

// 160 MiB for a short time.
static void spike(void) {
    usleep(1500000);
    for (int i = 0; i < 2560; i++)
        held[i] = burst(64 * KIB);
    usleep(30000);
    release();
    usleep(1500000);
}

static void quiet(void) {
    for (int i = 0; i < 320; i++)
        held[i] = load(64 * KIB);
    for (int i = 0; i < 8000; i++) {
        churn();
        usleep(TICK_US);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "ramp") == 0) {
        ramp();
    } else if (strcmp(what, "teardown") == 0) {
        ramp();
        release();
    } else if (strcmp(what, "leak") == 0) {
        leak();
    } else if (strcmp(what, "spike") == 0) {
        spike();
    } else {
        quiet();
    }
}
