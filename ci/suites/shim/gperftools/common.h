// gperftools' sizes that the tests read.
#pragma once
#include <cstddef>
static const size_t kPageShift = 13, kPageSize = size_t(1) << kPageShift, kMaxSize = 256 * 1024;
