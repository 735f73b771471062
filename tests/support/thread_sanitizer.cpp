// Part of every test program that the thread sanitizer checks.

/// What it is not to report. Exceptions are counted by atomics in libstdc++, which is not compiled for it: where the thread that
/// threw one drops it last, it sees the reads of the one that caught it, and its end, and nothing between them.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT: the sanitizer's name
  return "race:std::__exception_ptr::exception_ptr::_M_release\n"
         "race:std::runtime_error::~runtime_error\n"
         "race:tenon::Error::~Error\n";
}
