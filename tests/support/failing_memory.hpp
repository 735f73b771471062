// Memory that runs out at one allocation after the other.
#pragma once

#include "support/memory_watch.hpp"
#include "support/rounds.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <random>

#include <catch2/catch.hpp>

namespace tenon::testing {

/// What `make` gives. Its allocations are the test's, not those of what is tested; where one fails, the try counts as one
/// that ended well.
template <class Make>
auto own(const Make& make) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::out_of_memory, "", "");
  }
}

/// A copy for a call that takes its arguments by value.
template <class T>
T own_copy(const T& value) {
  return own([&] { return value; });
}

/// Calls `call` with one allocation failing, and again with all later ones failing too, for about
/// `samples` of its allocations (rounds.hpp: fewer under sanitizers): every n-th, from another one each time (TENON_TEST_SEED repeats
/// one). Each must end well, where somebody makes do with less, or in Errc::out_of_memory. `check`
/// is called in between, with memory enough: what failed has harmed nothing.
template <class Call, class Check>
void fail_allocations(std::size_t samples, const Call& call, const Check& check) {
  call();  // and whatever is made once per process
  std::size_t count = 0;
  {
    const MemoryWatch watch;
    call();
    count = watch.allocations();
  }
  const char* given = std::getenv("TENON_TEST_SEED");
  const auto seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  const std::size_t stride = std::max<std::size_t>(count * round_stride / samples, 1);
  INFO("TENON_TEST_SEED=" << seed << ", " << count << " allocations");
  REQUIRE(count > 0);
  for (const bool for_ever : {false, true}) {
    for (std::size_t k = seed % stride; k < count; k += stride) {
      bool typed = false, succeeded = false;
      {
        MemoryWatch watch;
        watch.fail_at(k, for_ever);
        try {
          call();
          succeeded = true;
        } catch (const Error& error) {
          typed = error.code() == Errc::out_of_memory;
          if (!typed) UNSCOPED_INFO(error.what());
        } catch (const std::bad_alloc&) {
          typed = for_ever;  // no memory for the error itself either
        }
        watch.fail_never();
      }
      if (!typed && !succeeded) {
        FAIL_CHECK("allocation " << k << (for_ever ? " and later ones" : ""));
      }
    }
    check();
  }
}

}  // namespace tenon::testing
