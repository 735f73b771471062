#pragma once

#include "emulation/thread.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/context/fiber.hpp>

namespace tenon::cuda::emulation {

/// Runs the threads of one block after another as fibres, and lets a thread wait for others. A
/// barrier that not all threads reach throws Errc::device_error, and so does a shuffle of a part of
/// a warp. Shared memory begins as NaNs. Blocks of odd number run their threads from the last to
/// the first, so that code which needs a barrier that is not there finds other values.
class BlockRunner {
 public:
  using Body = std::function<void(const Thread& thread)>;

  BlockRunner(std::string kernel, unsigned threads);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  void run(unsigned block, unsigned blocks, const Body& body);

  // Of the thread that runs.
  void sync();
  void sync_warp();
  std::uint64_t exchange(std::uint64_t bits, unsigned from_lane);
  std::uint32_t ballot(bool value);
  void* shared(const char* site, std::size_t bytes);

 private:
  struct Barrier {
    unsigned arrived = 0;
    std::uint64_t generation = 0;
  };
  struct Warp {
    Barrier barrier;
    unsigned lanes = 0;
    std::array<std::array<std::uint64_t, 32>, 2> values{};  // by parity of the generation
  };
  struct Fibre {
    boost::context::fiber context;
    const Barrier* waits_for = nullptr;
    std::uint64_t generation = 0;  // of that barrier, when it began to wait
    bool has_ended = false;
  };
  struct SharedBlock {
    const char* site;
    std::size_t begin, bytes;
  };

  void start(unsigned thread, unsigned block, unsigned blocks, const Body& body);
  void resume(unsigned thread);
  void wait(Barrier& barrier, unsigned threads);
  bool can_go_on(const Fibre& fibre) const;
  [[noreturn]] void throw_stuck(unsigned block) const;
  std::byte* stack(unsigned thread) const { return stacks_ + thread * stack_bytes; }

  static constexpr std::size_t stack_bytes = 64 * 1024;
  std::string kernel_;
  unsigned threads_;
  unsigned running_ = 0;
  std::byte* stacks_ = nullptr;
  Barrier barrier_;
  std::vector<Warp> warps_;
  std::vector<Fibre> fibres_;
  boost::context::fiber scheduler_;
  std::vector<std::byte> shared_;
  std::vector<SharedBlock> shared_blocks_;
  std::size_t shared_bytes_ = 0;
  std::exception_ptr error_;
};

}  // namespace tenon::cuda::emulation
