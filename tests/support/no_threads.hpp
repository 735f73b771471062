// A process that can start no threads.
#pragma once

#include <cstddef>

#include <catch2/catch.hpp>
#include <pthread.h>

namespace tenon::testing {

/// As long as it lives: new threads would get a stack that no address space holds.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t attributes;
    REQUIRE(::pthread_getattr_default_np(&attributes) == 0);
    REQUIRE(::pthread_attr_getstacksize(&attributes, &before_) == 0);
    ::pthread_attr_destroy(&attributes);
    set(std::size_t{1} << 47);
  }
  ~NoThreads() { set(before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  static void set(std::size_t bytes) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, bytes);
    const int status = ::pthread_setattr_default_np(&attributes);
    ::pthread_attr_destroy(&attributes);
    CHECK(status == 0);
  }

  std::size_t before_ = 0;
};

}  // namespace tenon::testing
