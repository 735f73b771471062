// What the emulation finds in kernels that are wrong.
#include "driver/driver.hpp"
#include "emulated.hpp"
#include "emulation/block_runner.hpp"
#include "kernels/tensor_core.hpp"
#include "support/expect_error.hpp"

#include <tenon/buffer.hpp>

#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

using cuda::Thread;
using cuda::emulation::BlockRunner;

TEST_CASE("emulation: barriers, shuffles and ballots") {
  BlockRunner runner("test", 64);
  std::vector<std::int64_t> sums(64);
  std::vector<std::uint32_t> ballots(64);
  for (unsigned block = 0; block < 3; ++block) {
    runner.run(block, 3, [&](const Thread& thread) {
      TENON_SHARED(thread, std::int64_t, values, 64);
      values[thread.index()] = thread.index() + 1;
      thread.sync();
      std::int64_t sum = values[63 - thread.index()];
      for (unsigned mask = 16; mask > 0; mask /= 2) sum += thread.shuffle_xor(sum, mask);
      ballots[thread.index()] = thread.ballot(thread.index() % 3 == 0);
      sums[thread.index()] = sum;
    });
    for (unsigned i = 0; i < 64; ++i) {
      CHECK(sums[i] == (i < 32 ? 33 + 64 : 1 + 32) * 16);
      std::uint32_t wanted = 0;
      for (unsigned lane = 0; lane < 32; ++lane) {
        wanted |= ((i / 32 * 32 + lane) % 3 == 0 ? 1u : 0u) << lane;
      }
      CHECK(ballots[i] == wanted);
    }
  }
}

TEST_CASE("emulation: a barrier that not all threads reach") {
  BlockRunner runner("broken", 64);
  const std::string what = expect_error(Errc::device_error, [&] {
    runner.run(5, 8, [](const Thread& thread) {
      if (thread.index() < 40) thread.sync();
    });
  });
  CHECK(what.find("broken: block 5") != std::string::npos);
  CHECK(what.find("40 of 64 wait for their block, 0 for their warp, 24 have ended") !=
        std::string::npos);
}

TEST_CASE("emulation: a shuffle of a part of a warp, and barriers that differ") {
  BlockRunner runner("broken", 32);
  expect_error(Errc::device_error, [&] {
    runner.run(0, 1, [](const Thread& thread) {
      if (thread.index() != 7) thread.shuffle_xor(1.0f, 1);
    });
  });
  expect_error(Errc::device_error, [&] {
    runner.run(0, 1, [](const Thread& thread) {
      if (thread.index() % 2 == 0) {
        thread.sync();
      } else {
        thread.sync_warp();
      }
    });
  });
  expect_error(Errc::device_error, [] { BlockRunner("odd", 33); });
}

TEST_CASE("emulation: shared memory beyond an array, and more of it than there is") {
  BlockRunner runner("broken", 32);
  const std::string what = expect_error(Errc::device_error, [&] {
    runner.run(0, 1, [](const Thread& thread) {
      TENON_SHARED(thread, float, tile, 16);
      tile[thread.index()] = 1;
    });
  });
  CHECK(what.find("tile: element 16 of an array of 16") != std::string::npos);
  expect_error(Errc::device_error, [&] {
    runner.run(0, 1, [](const Thread& thread) {
      TENON_SHARED(thread, float, large, 20000);
      large[0] = 1;
    });
  });
}

TEST_CASE("emulation: a missing barrier is seen, since threads run in either order") {
  BlockRunner runner("racing", 64);
  bool differs = false;
  for (unsigned block = 0; block < 2; ++block) {
    std::vector<float> seen(64);
    runner.run(block, 2, [&](const Thread& thread) {
      TENON_SHARED(thread, float, values, 64);
      values[thread.index()] = 1;
      seen[thread.index()] = values[63 - thread.index()];  // of a thread that may not have begun
    });
    for (const float value : seen) differs = differs || value != 1;
  }
  CHECK(differs);
}

/// Element i of a lane's fragments, as the tables of the PTX ISA for mma.m16n8k16 say.
struct Cell {
  unsigned row, column;
};
Cell cell_of_a(unsigned lane, unsigned i) {
  const bool is_upper = i < 2 || (i >= 4 && i < 6);
  return {lane / 4 + (is_upper ? 0 : 8), lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)};
}
Cell cell_of_b(unsigned lane, unsigned i) {
  return {lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8), lane / 4};
}
Cell cell_of_c(unsigned lane, unsigned i) {
  return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + i % 2};
}

template <bool is_half>
void check_fragments() {
  const auto narrow = [](float x) {
    return is_half ? cuda::narrow_half(x) : cuda::narrow_bfloat16(x);
  };
  const auto a = [](Cell at) { return static_cast<float>(3 * at.row + at.column) - 20; };
  const auto b = [](Cell at) {
    return static_cast<float>(at.row) - 2 * static_cast<float>(at.column);
  };
  BlockRunner runner("fragments", 32);
  int wrong = 0;
  runner.run(0, 1, [&](const Thread& thread) {
    const unsigned lane = thread.index();
    cuda::FragmentA left{};
    cuda::FragmentB right{};
    cuda::FragmentC sums;
    for (unsigned i = 0; i < 8; ++i) {
      left.pairs[i / 2] |= std::uint32_t{narrow(a(cell_of_a(lane, i)))} << (i % 2 * 16);
    }
    for (unsigned i = 0; i < 4; ++i) {
      right.pairs[i / 2] |= std::uint32_t{narrow(b(cell_of_b(lane, i)))} << (i % 2 * 16);
      sums.sums[i] = 0.5f;
    }
    cuda::multiply_fragments<is_half>(thread, left, right, sums);
    for (unsigned i = 0; i < 4; ++i) {
      const Cell at = cell_of_c(lane, i);
      float wanted = 0.5f;
      for (unsigned k = 0; k < 16; ++k) wanted += a({at.row, k}) * b({k, at.column});
      if (sums.sums[i] != wanted) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("emulation: tensor cores multiply what the lanes' fragments hold") {
  check_fragments<true>();
  check_fragments<false>();
}

/// Whether a child process that does this is ended by a fault.
template <class Function>
bool faults(Function&& function) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGBUS, SIGILL}) std::signal(number, SIG_DFL);
    function();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

TEST_CASE("emulation: where kernels, and the CPU, may not read device memory") {
  const DevicePtr device = emulated_device();
  const MemChunk chunk = device->default_mem_region().malloc(256);
  const cuda::Address address = chunk.begin().addr();
  CHECK(!chunk.begin().has_cptr());
  CHECK(faults([&] { *reinterpret_cast<volatile char*>(address); }));
  CHECK(!faults([&] { *cuda::global<volatile char>(address + 255); }));
  CHECK(faults([&] { *cuda::global<volatile char>(address + 256); }));
  CHECK(faults([&] { *cuda::global<volatile char>(address - 4096); }));
  CHECK(!faults([&] { *cuda::global<volatile std::uint64_t>(address + 8); }));
  CHECK(faults([&] { *cuda::global<volatile std::uint64_t>(address + 4); }));
}

TEST_CASE("emulation: work waits until somebody waits for it") {
  const cuda::DriverPtr driver = cuda::open_emulated_driver({});
  const cuda::Address memory = driver->allocate(8);
  const cuda::StreamId first = driver->create_stream(), second = driver->create_stream();
  const cuda::EventId event = driver->create_event();
  const std::uint64_t value = 7;
  std::uint64_t read = 0;
  driver->fill(first, memory, 1, 8);
  driver->write(first, memory, &value, 8);
  driver->record(event, first);
  driver->wait(second, event);
  driver->read(second, &read, memory, 8);
  CHECK(read == 0);
  driver->synchronize(second);
  CHECK(read == 7);
  CHECK(driver->has_happened(event));
  driver->free(memory);
  // A copy beyond what is allocated ends the device's life, and says so from then on.
  driver->write(first, memory, &value, 8);
  expect_error(Errc::device_error, [&] { driver->synchronize(first); });
  expect_error(Errc::device_error, [&] { driver->allocate(8); });
  driver->destroy(first);
  driver->destroy(second);
  driver->destroy(event);
}

}  // namespace
}  // namespace tenon::testing
