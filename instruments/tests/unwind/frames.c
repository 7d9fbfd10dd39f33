/* Frames of many kinds, each on top of the other, and a callback on top of all. Built with and
 * without frame pointers, with and without tables. */

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef void (*callback)(void);

enum kind { PLAIN, LARGE, ALIGNED, VARIABLE, SORT, SIGNAL, KINDS };

struct step {
    const unsigned char *kinds;
    size_t count;
    callback top;
};

static void go(struct step step);

/* After a call: keeps it from being a jump. */
#define STAY __asm__ volatile("" ::: "memory")

static struct step after(struct step step)
{
    return (struct step){step.kinds + 1, step.count - 1, step.top};
}

__attribute__((noinline)) static void plain(struct step step)
{
    go(after(step));
    STAY;
}

__attribute__((noinline)) static void large(struct step step)
{
    volatile char room[20000];
    room[0] = 1;
    go(after(step));
    room[1] = room[0];
}

/* The stack pointer is rounded down here: the table needs an expression, or the frame pointer. */
__attribute__((noinline)) static void aligned(struct step step)
{
    volatile char room[64] __attribute__((aligned(64)));
    room[0] = 1;
    go(after(step));
    room[1] = room[0];
}

__attribute__((noinline)) static void variable(struct step step)
{
    volatile char *room = __builtin_alloca(step.count * 100);
    room[0] = 1;
    go(after(step));
    room[0] = room[1];
}

static _Thread_local struct step pending;

/* Goes on with what is pending, once. */
static inline void resume(void)
{
    struct step step = pending;
    pending.top = NULL;
    if (step.top != NULL)
        go(step);
}

static int compare(const void *first, const void *second)
{
    resume();
    return *(const int *)first - *(const int *)second;
}

__attribute__((noinline)) static void sort(struct step step)
{
    int numbers[] = {3, 1, 2};
    pending = after(step);
    qsort(numbers, 3, sizeof numbers[0], compare);
    STAY;
}

static void handler(int number)
{
    (void)number;
    resume();
    STAY;
}

__attribute__((noinline)) static void interrupted(struct step step)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGUSR1, &action, NULL);
    pending = after(step);
    raise(SIGUSR1);
    STAY;
}

static void go(struct step step)
{
    if (step.count == 0) {
        step.top();
        STAY;
        return;
    }
    static void (*const of_kind[KINDS])(struct step) = {plain, large, aligned, variable, sort, interrupted};
    of_kind[step.kinds[0] % KINDS](step);
    STAY;
}

/* Calls `top` with a frame of each kind below it. */
void climb(const unsigned char *kinds, size_t count, callback top)
{
    go((struct step){kinds, count, top});
    STAY;
}

/* Calls itself `depth` times, then `top`. */
__attribute__((noinline)) void descend(unsigned depth, callback top)
{
    if (depth == 0)
        top();
    else
        descend(depth - 1, top);
    STAY;
}

/* The rest is assembly, so that it has no tables unless it says so.
 *
 * with_fp(top, value): calls `top` with `value` in the frame pointer's register.
 * with_fp_told(top, value): the same, and a table tells where the register is saved.
 * with_return(top, address): calls `top` in a frame whose return address is `address`.
 * with_stack(top, end): calls `top` on the stack that ends at `end`, the frame pointer on its last
 * word.
 * after_no_call: code behind instructions none of which is a call. */
__asm__(".text\n"
        ".globl with_fp\n.type with_fp, @function\n"
        "with_fp:\n"
        "    push %rbp\n"
        "    mov %rsi, %rbp\n"
        "    call *%rdi\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size with_fp, . - with_fp\n"
        ".globl with_fp_told\n.type with_fp_told, @function\n"
        "with_fp_told:\n"
        "    .cfi_startproc\n"
        "    push %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset 6, -16\n"
        "    mov %rsi, %rbp\n"
        "    call *%rdi\n"
        "    pop %rbp\n"
        "    .cfi_def_cfa_offset 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size with_fp_told, . - with_fp_told\n"
        ".globl with_return\n.type with_return, @function\n"
        "with_return:\n"
        "    push %rbp\n"
        "    push %r12\n"
        "    mov %rsp, %r12\n"
        "    sub $8, %rsp\n"
        "    push %rsi\n"
        "    push %rbp\n"
        "    mov %rsp, %rbp\n"
        "    call *%rdi\n"
        "    mov %r12, %rsp\n"
        "    pop %r12\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size with_return, . - with_return\n"
        ".globl with_stack\n.type with_stack, @function\n"
        "with_stack:\n"
        "    push %rbp\n"
        "    push %r12\n"
        "    sub $8, %rsp\n"
        "    mov %rsp, %r12\n"
        "    mov %rsi, %rsp\n"
        "    lea -8(%rsi), %rbp\n"
        "    sub $16, %rsp\n"
        "    call *%rdi\n"
        "    mov %r12, %rsp\n"
        "    add $8, %rsp\n"
        "    pop %r12\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size with_stack, . - with_stack\n"
        ".skip 16, 0x90\n"
        ".globl after_no_call\n.type after_no_call, @function\n"
        "after_no_call:\n"
        "    ret\n"
        ".size after_no_call, . - after_no_call\n"
        ".section .note.GNU-stack,\"\",@progbits\n"
        ".text\n");
