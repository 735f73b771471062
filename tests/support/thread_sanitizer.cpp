// Part of every test program that the thread sanitizer checks.

/// What it is not to report: the end of an exception. libstdc++ counts an exception's owners in code that the sanitizer does not
/// see, so that it takes the last release for a race with an earlier read in another thread.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT: the sanitizer's name
  return "race:std::__exception_ptr::exception_ptr::_M_release\n"
         "race:std::runtime_error::~runtime_error\n"
         "race:tenon::Error::~Error\n";
}
