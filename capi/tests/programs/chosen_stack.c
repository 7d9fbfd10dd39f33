/* While overflows are reported, a handler of SIGSEGV runs on the stack that the program chose: the
   interrupted one, or with SA_ONSTACK the alternate one. What it interrupted goes on as it was. */
#include "overflow.h"
#include <unwind.h>

enum { PAGE = 64 << 10 };

static char *pages;
static stack_t alternate;
static volatile int flags, calls, depth;
static sigjmp_buf back;
static volatile int walked_to;

#ifdef __x86_64__
#define SP(context) ((context)->uc_mcontext.gregs[REG_RSP])
#define PC(context) ((context)->uc_mcontext.gregs[REG_RIP])
/* Writes a byte with a number in a vector register. Returns the number afterwards. */
static __attribute__((noinline)) uint64_t write_with(char *at, uint64_t number) {
    __asm__ volatile("movq %1, %%xmm5; movb $1, (%2); movq %%xmm5, %0"
                     : "=r"(number) : "0"(number), "r"(at) : "xmm5", "memory");
    return number;
}
static void clear_register(void) { __asm__ volatile("pxor %%xmm5, %%xmm5" : : : "xmm5"); }
#else
#define SP(context) ((context)->uc_mcontext.sp)
#define PC(context) ((context)->uc_mcontext.pc)
static __attribute__((noinline)) uint64_t write_with(char *at, uint64_t number) {
    __asm__ volatile("fmov d5, %0; strb wzr, [%1]; fmov %0, d5"
                     : "+r"(number) : "r"(at) : "d5", "memory");
    return number;
}
static void clear_register(void) { __asm__ volatile("fmov d5, xzr" : : : "d5"); }
#endif

static int is_in(const stack_t *stack, uintptr_t at) {
    return at - (uintptr_t)stack->ss_sp < stack->ss_size;
}

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument) {
    int before = 0;
    uintptr_t at = _Unwind_GetIPInfo(context, &before);
    walked_to |= at == *(uintptr_t *)argument ? 1 : 0;
    return _URC_NO_REASON;
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), sp = SP((ucontext_t *)context);
    uintptr_t pc = PC((ucontext_t *)context);
    stack_t now;
    CHECK(signal == SIGSEGV);
    CHECK(sigaltstack(NULL, &now) == 0);
    CHECK(now.ss_sp == alternate.ss_sp && now.ss_size == alternate.ss_size);
    if (flags & SA_ONSTACK) {
        CHECK(is_in(&alternate, here) && now.ss_flags == SS_ONSTACK);
    } else {
        CHECK(here < sp && sp - here < 32 << 10 && now.ss_flags == 0);
        CHECK(!is_in(&alternate, (uintptr_t)context) && !is_in(&alternate, (uintptr_t)info));
    }
    walked_to = 0;
    _Unwind_Backtrace(step, &pc);
    CHECK(walked_to);
    clear_register();
    calls++;
    /* A second fault while this one is handled. */
    if (depth-- > 0) CHECK(write_with(pages + depth * PAGE, 11) == 11);
    if (info->si_code <= 0) return;
    CHECK(mprotect((char *)((uintptr_t)info->si_addr / PAGE * PAGE), PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void on_fault_leaving(int signal) {
    CHECK(is_in(&alternate, (uintptr_t)__builtin_frame_address(0)) == !!(flags & SA_ONSTACK));
    siglongjmp(back, signal);
}

static void guard_pages(void) { CHECK(mprotect(pages, 4 * PAGE, PROT_READ) == 0); }

static void faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | flags};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int round = 0; round < 3; round++) {
        guard_pages();
        calls = 0;
        depth = flags & SA_NODEFER ? round : 0;
        int expected = 1 + depth;
        CHECK(write_with(pages + 3 * PAGE, 77) == 77);
        CHECK(calls == expected);
    }
    calls = depth = 0;
    CHECK(raise(SIGSEGV) == 0 && calls == 1);
    action.sa_handler = on_fault_leaving;
    action.sa_flags = flags;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    for (int round = 0; round < 3; round++) {
        guard_pages();
        if (sigsetjmp(back, 1) == 0) {
            write_with(pages, 5);
            CHECK(!"a fault");
        }
    }
}

int main(void) {
    CHECK(neap_stack_report_overflows() == 1);
    CHECK(sigaltstack(NULL, &alternate) == 0 && alternate.ss_size > 0);
    char *area = mmap(NULL, 5 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    pages = (char *)(((uintptr_t)area + PAGE - 1) / PAGE * PAGE);
    int ways[] = {0, SA_NODEFER, SA_ONSTACK, SA_ONSTACK | SA_NODEFER};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        flags = ways[way];
        faults();
        run(faults, NULL);
    }
}
