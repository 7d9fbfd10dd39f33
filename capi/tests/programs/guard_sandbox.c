/* A sandbox that kills for madvise and gettid. Blocks that were guarded before are freed in it, and
   more are made: the process lives. */
#include <stdint.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCKS = 20 };

static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};

int main(void) {
    char *volatile blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(64);
        memset(blocks[i], 1, 64);
        /* Each guarded block has a page of its own. */
        for (int j = 0; j < i; j++) {
            if ((uintptr_t)blocks[i] / 4096 == (uintptr_t)blocks[j] / 4096) {
                puts("not guarded");
                return 1;
            }
        }
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        puts("skipped: no filters");
        return 0;
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    for (int i = 0; i < 10000; i++) {
        char *volatile block = malloc(64);
        memset(block, 1, 64);
        free(block);
    }
    return 0;
}
