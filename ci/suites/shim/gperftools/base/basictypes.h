// Replaces gperftools' header.
#pragma once
#include <cstdint>
#define arraysize(array) (sizeof(array) / sizeof *(array))
