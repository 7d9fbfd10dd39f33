// Replaces gperftools' header: its checks, which end the program.
#pragma once
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#define CHECK(condition)                                                          \
    ((condition) ? (void)0                                                        \
                 : (fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition), abort()))
#define CHECK_CONDITION(condition) CHECK(condition)
#define CHECK_EQ(a, b) CHECK((a) == (b))
#define CHECK_NE(a, b) CHECK((a) != (b))
#define CHECK_LE(a, b) CHECK((a) <= (b))
#define CHECK_LT(a, b) CHECK((a) < (b))
#define CHECK_GE(a, b) CHECK((a) >= (b))
#define CHECK_GT(a, b) CHECK((a) > (b))
#define EXPECT_TRUE(condition) CHECK(condition)
#define EXPECT_EQ(a, b) CHECK_EQ(a, b)
typedef int64_t int64;
#define VLOG(level, ...) fprintf(stderr, __VA_ARGS__)
#define LOG(level, ...) fprintf(stderr, __VA_ARGS__)
#define RAW_LOG(level, ...) fprintf(stderr, __VA_ARGS__)
