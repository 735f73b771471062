#include "emulation/block_runner.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <boost/context/preallocated.hpp>
#include <fmt/format.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define TENON_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TENON_ASAN 1
#endif
#endif
#ifdef TENON_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tenon::cuda {
namespace emulation {
namespace {

/// What the hardware has per block.
constexpr std::size_t max_shared_bytes = 48 * 1024;

/// The stacks belong to the runner.
struct KeptStack {
  void deallocate(boost::context::stack_context&) noexcept {}
};

#ifdef TENON_ASAN
// The sanitizer has to be told of every change of stacks.
thread_local void* scheduler_fake_stack = nullptr;
thread_local const void* scheduler_bottom = nullptr;
thread_local std::size_t scheduler_size = 0;
void enter_fibre(const void* stack, std::size_t bytes) {
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stack, bytes);
}
void entered_fibre(void* fake) {
  __sanitizer_finish_switch_fiber(fake, &scheduler_bottom, &scheduler_size);
}
void leave_fibre(void** fake) {
  __sanitizer_start_switch_fiber(fake, scheduler_bottom, scheduler_size);
}
void left_fibre() { __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr); }
#else
void enter_fibre(const void*, std::size_t) {}
void entered_fibre(void*) {}
void leave_fibre(void**) {}
void left_fibre() {}
#endif

}  // namespace

void throw_outside_shared(const char* array, std::size_t index, std::size_t size) {
  throw Error(Errc::device_error, array,
              fmt::format("element {} of an array of {} in shared memory", index, size));
}

void throw_misaligned(std::uint64_t address, std::size_t alignment) {
  throw Error(Errc::device_error, "emulation",
              fmt::format("address {:#x} is not aligned to {}", address, alignment));
}

BlockRunner::BlockRunner(std::string kernel, unsigned threads)
    : kernel_(std::move(kernel)), threads_(threads), shared_(max_shared_bytes) {
  if (threads == 0 || threads > 1024 || threads % 32 != 0) {
    throw Error(Errc::device_error, kernel_, fmt::format("blocks of {} threads", threads));
  }
  void* const stacks = mmap(nullptr, threads * stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) throw Error(Errc::out_of_memory, kernel_, "no memory for stacks");
  stacks_ = static_cast<std::byte*>(stacks);
  warps_.resize(threads / 32);
}

BlockRunner::~BlockRunner() {
  fibres_.clear();
  munmap(stacks_, threads_ * stack_bytes);
}

void BlockRunner::start(unsigned thread, unsigned block, unsigned blocks, const Body& body) {
  boost::context::stack_context context;
  context.size = stack_bytes;
  context.sp = stack(thread) + stack_bytes;
  const boost::context::preallocated place(context.sp, context.size, context);
  fibres_[thread].context = boost::context::fiber(
      std::allocator_arg, place, KeptStack(),
      [this, thread, block, blocks, &body](boost::context::fiber&& scheduler) {
        entered_fibre(nullptr);
        scheduler_ = std::move(scheduler);
        try {
          body(Thread(thread, threads_, block, blocks, this));
        } catch (const boost::context::detail::forced_unwind&) {
          throw;
        } catch (...) {
          if (!error_) error_ = std::current_exception();
        }
        fibres_[thread].has_ended = true;
        leave_fibre(nullptr);
        return std::move(scheduler_);
      });
}

void BlockRunner::resume(unsigned thread) {
  running_ = thread;
  Fibre& fibre = fibres_[thread];
  fibre.waits_for = nullptr;
  enter_fibre(stack(thread), stack_bytes);
  fibre.context = std::move(fibre.context).resume();
  left_fibre();
}

bool BlockRunner::can_go_on(const Fibre& fibre) const {
  if (fibre.has_ended) return false;
  return fibre.waits_for == nullptr || fibre.waits_for->generation != fibre.generation;
}

void BlockRunner::run(unsigned block, unsigned blocks, const Body& body) {
  std::ranges::fill(shared_, std::byte{0xFF});
  shared_blocks_.clear();
  shared_bytes_ = 0;
  barrier_ = {};
  for (Warp& warp : warps_) warp.barrier = {};
  fibres_.clear();
  fibres_.resize(threads_);
  error_ = nullptr;
  for (unsigned thread = 0; thread < threads_; ++thread) start(thread, block, blocks, body);
  bool has_progress = true;
  while (has_progress && !error_) {
    has_progress = false;
    for (unsigned i = 0; i < threads_ && !error_; ++i) {
      const unsigned thread = block % 2 == 0 ? i : threads_ - 1 - i;
      if (!can_go_on(fibres_[thread])) continue;
      has_progress = true;
      resume(thread);
    }
  }
  const bool all_ended = std::ranges::all_of(fibres_, &Fibre::has_ended);
  if (error_) {
    const std::exception_ptr error = error_;
    fibres_.clear();
    std::rethrow_exception(error);
  }
  if (!all_ended) throw_stuck(block);
}

void BlockRunner::throw_stuck(unsigned block) const {
  unsigned ended = 0, at_block = 0, at_warp = 0;
  for (const Fibre& fibre : fibres_) {
    if (fibre.has_ended) {
      ++ended;
    } else {
      ++(fibre.waits_for == &barrier_ ? at_block : at_warp);
    }
  }
  throw Error(Errc::device_error, kernel_,
              fmt::format("block {}: a barrier that not all threads reach: {} of {} wait for their "
                          "block, {} for their warp, {} have ended",
                          block, at_block, threads_, at_warp, ended));
}

void BlockRunner::wait(Barrier& barrier, unsigned threads) {
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  Fibre& fibre = fibres_[running_];
  fibre.waits_for = &barrier;
  fibre.generation = barrier.generation;
  void* fake = nullptr;
  leave_fibre(&fake);
  scheduler_ = std::move(scheduler_).resume();
  entered_fibre(fake);
}

void BlockRunner::sync() { wait(barrier_, threads_); }
void BlockRunner::sync_warp() { wait(warps_[running_ / 32].barrier, 32); }

std::uint64_t BlockRunner::exchange(std::uint64_t bits, unsigned from_lane) {
  Warp& warp = warps_[running_ / 32];
  auto& values = warp.values[warp.barrier.generation % 2];
  values[running_ % 32] = bits;
  wait(warp.barrier, 32);
  return values[from_lane % 32];
}

std::uint32_t BlockRunner::ballot(bool value) {
  Warp& warp = warps_[running_ / 32];
  auto& values = warp.values[warp.barrier.generation % 2];
  values[running_ % 32] = value ? 1 : 0;
  wait(warp.barrier, 32);
  std::uint32_t result = 0;
  for (unsigned lane = 0; lane < 32; ++lane) result |= (values[lane] != 0 ? 1u : 0u) << lane;
  return result;
}

void* BlockRunner::shared(const char* site, std::size_t bytes) {
  for (const SharedBlock& known : shared_blocks_) {
    if (known.site == site) return shared_.data() + known.begin;
  }
  const std::size_t begin = (shared_bytes_ + 15) / 16 * 16;
  if (begin + bytes > max_shared_bytes) {
    throw Error(Errc::device_error, kernel_, "more shared memory than a block has");
  }
  shared_blocks_.push_back({site, begin, bytes});
  shared_bytes_ = begin + bytes;
  return shared_.data() + begin;
}

namespace {

BlockRunner& required(BlockRunner* runner) {
  if (runner != nullptr) return *runner;
  throw Error(Errc::device_error, "emulation",
              "a kernel that entries.def lists as one without barriers uses shared memory, a "
              "barrier or a shuffle");
}

}  // namespace
}  // namespace emulation

void Thread::sync() const { emulation::required(runner_).sync(); }
void Thread::sync_warp() const { emulation::required(runner_).sync_warp(); }
std::uint64_t Thread::exchange(std::uint64_t bits, unsigned from_lane) const {
  return emulation::required(runner_).exchange(bits, from_lane);
}
std::uint32_t Thread::ballot(bool value) const {
  return emulation::required(runner_).ballot(value);
}
void* Thread::shared_bytes(const char* site, std::size_t bytes) const {
  return emulation::required(runner_).shared(site, bytes);
}

}  // namespace tenon::cuda
