// Part of every test program: its programs are small, and threads are to share their work nevertheless.

#include <cstdlib>

namespace {

[[maybe_unused]] const int shared = setenv("TENON_CPU_MIN_SHARED_WORK", "0", 0);

}  // namespace
