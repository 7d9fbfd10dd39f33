// The first thread of a process, which was its only one for a while, and a second one free one
// block at the same moment. One of them must abort, each time. In every second round, the second
// thread has called the library before.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 300, BYTES = 4000 };

static void *volatile block;
static volatile int ready, waited;

static void *second(void *entered) {
  if (entered) {
    void *volatile own = malloc(BYTES);
    free(own);
  }
  ready = 1;
  while (!block)
    ;
  free(block);
  return entered;
}

static void race(int round) {
  pthread_t thread;
  // This thread frees blocks as the only one for now.
  void *volatile first = malloc(BYTES);
  free(first);
  void *own = malloc(BYTES);
  static int entered;
  if (!own || pthread_create(&thread, NULL, second, round % 2 ? &entered : NULL))
    _exit(2);
  while (!ready)
    sched_yield();
  block = own;
  // Until the second thread sees the block. Its first call takes longer.
  for (int i = 0; i < (round % 2 ? round : round * 40); i++)
    waited = i;
  free(own);
  pthread_join(thread, NULL);
  _exit(0);
}

int main(void) {
  for (int round = 0; round < PROCESSES; round++) {
    pid_t child = fork();
    if (child == 0) {
      // The library's line for each round.
      close(STDERR_FILENO);
      race(round);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
      perror("racing_free: fork");
      return 1;
    }
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) {
      fprintf(stderr, "racing_free: status %#x in round %d\n", status, round);
      return 1;
    }
  }
  return 0;
}
