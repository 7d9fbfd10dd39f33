/* A server of 1,000 threads that records what it holds: see main.rs.
   Its arguments: the file for the truth, and how it ends. */

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 1000, BLOCK = 4096, FEW = 10, MANY = 30 };

static atomic_long live;
static int truth;
static pthread_barrier_t step;

static void say(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    long pages = 0;
    char text[128];
    int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t length = read(statm, text, sizeof text - 1);
    close(statm);
    text[length > 0 ? length : 0] = 0;
    sscanf(text, "%*d %ld", &pages);
    int written = snprintf(text, sizeof text, "%lld %ld %ld\n",
                           (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, atomic_load(&live),
                           pages * sysconf(_SC_PAGESIZE));
    if (write(truth, text, written) != written)
        abort();
}

static void *tell(void *unused)
{
    for (;;) {
        say();
        usleep(5000);
    }
    return unused;
}

static void take(void **blocks, int from, int to)
{
    for (int at = from; at < to; at++) {
        blocks[at] = malloc(BLOCK);
        memset(blocks[at], 1, BLOCK);
        atomic_fetch_add(&live, BLOCK);
    }
}

static void give(void **blocks, int from, int to)
{
    for (int at = from; at < to; at++) {
        free(blocks[at]);
        atomic_fetch_sub(&live, BLOCK);
    }
}

static void *work(void *unused)
{
    void *blocks[MANY];
    pthread_barrier_wait(&step);
    take(blocks, 0, FEW);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    take(blocks, FEW, MANY);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    give(blocks, FEW, MANY);
    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    give(blocks, 0, FEW);
    return unused;
}

int main(int count, char **words)
{
    if (count != 3)
        return 2;
    truth = open(words[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    pthread_barrier_init(&step, NULL, THREADS + 1);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    static pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], &small, work, NULL))
            return 3;
    pthread_t teller;
    pthread_create(&teller, NULL, tell, NULL);
    for (int phase = 0; phase < 3; phase++) {
        pthread_barrier_wait(&step);
        pthread_barrier_wait(&step);
        usleep(1200 * 1000);
        if (phase == 1 && !strcmp(words[2], "kill")) {
            say();
            kill(getpid(), SIGKILL);
        }
    }
    pthread_barrier_wait(&step);
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    say();
    return 0;
}
