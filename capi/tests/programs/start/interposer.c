/* A library that has the function NAME, which allocates in each call before it calls the next one
   of that name. It is in assembly, so that it may have any arguments. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)
#define BEGIN ".text\n.globl " TEXT_OF(NAME) "\n.type " TEXT_OF(NAME) ",%function\n" TEXT_OF(NAME) ":\n"

static void *next(void) {
    const char *name = TEXT_OF(NAME);
    if (strcmp(name, "dlsym") != 0) return dlsym(RTLD_NEXT, name);
#ifdef __GLIBC__
    for (const char **version = (const char *[]){"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5", NULL};
         *version; version++) {
        void *found = dlvsym(RTLD_NEXT, name, *version);
        if (found) return found;
    }
#endif
    return NULL;
}

__attribute__((used)) static void *allocate_and_find(void) {
    static void *found;
    if (!found) found = next();
    char *block = malloc(100);
    if (block) *(volatile char *)block = 1;
    free(block);
    return found;
}

#ifdef __x86_64__
__asm__(BEGIN
        "push %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %rax\n"
        "sub $128, %rsp\n"
        "movups %xmm0, (%rsp)\nmovups %xmm1, 16(%rsp)\nmovups %xmm2, 32(%rsp)\n"
        "movups %xmm3, 48(%rsp)\nmovups %xmm4, 64(%rsp)\nmovups %xmm5, 80(%rsp)\n"
        "movups %xmm6, 96(%rsp)\nmovups %xmm7, 112(%rsp)\n"
        "call allocate_and_find\n"
        "mov %rax, %r11\n"
        "movups (%rsp), %xmm0\nmovups 16(%rsp), %xmm1\nmovups 32(%rsp), %xmm2\n"
        "movups 48(%rsp), %xmm3\nmovups 64(%rsp), %xmm4\nmovups 80(%rsp), %xmm5\n"
        "movups 96(%rsp), %xmm6\nmovups 112(%rsp), %xmm7\n"
        "add $128, %rsp\n"
        "pop %rax\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\n"
        "jmp *%r11\n");
#else
__asm__(BEGIN
        "stp x29, x30, [sp, #-224]!\nmov x29, sp\n"
        "stp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]\nstp x4, x5, [sp, #48]\n"
        "stp x6, x7, [sp, #64]\nstr x8, [sp, #80]\n"
        "stp q0, q1, [sp, #96]\nstp q2, q3, [sp, #128]\nstp q4, q5, [sp, #160]\n"
        "stp q6, q7, [sp, #192]\n"
        "bl allocate_and_find\n"
        "mov x16, x0\n"
        "ldp x0, x1, [sp, #16]\nldp x2, x3, [sp, #32]\nldp x4, x5, [sp, #48]\n"
        "ldp x6, x7, [sp, #64]\nldr x8, [sp, #80]\n"
        "ldp q0, q1, [sp, #96]\nldp q2, q3, [sp, #128]\nldp q4, q5, [sp, #160]\n"
        "ldp q6, q7, [sp, #192]\n"
        "ldp x29, x30, [sp], #224\n"
        "br x16\n");
#endif
