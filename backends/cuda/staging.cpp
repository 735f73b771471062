#include "staging.hpp"

#include <tenon/memory_errors.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

namespace tenon::cuda {
namespace {

constexpr std::uint64_t max_lanes = 4;
/// A lane more for so many pieces.
constexpr std::uint64_t pieces_of_lane = 8;

}  // namespace

class Staging::Lane {
 public:
  Lane(Driver& driver, std::uint64_t piece_bytes) : driver_(driver) {
    try {
      stream = driver_.create_stream();
      for (Slot& slot : slots) {
        slot.memory = static_cast<std::byte*>(driver_.allocate_pinned(piece_bytes));
        slot.done = driver_.create_event();
      }
    } catch (...) {
      free();
      throw;
    }
  }
  ~Lane() { free(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  struct Slot {
    std::byte* memory = nullptr;
    EventId done{};
    bool is_used = false;
  };
  /// Waits for the copy that uses a slot.
  void wait_for(Slot& slot) {
    if (slot.is_used) driver_.synchronize(slot.done);
    slot.is_used = false;
  }
  void mark(Slot& slot) {
    driver_.record(slot.done, stream);
    slot.is_used = true;
  }

  StreamId stream{};
  std::array<Slot, 2> slots;

 private:
  void free() noexcept {
    if (stream != StreamId{}) driver_.destroy(stream);
    for (const Slot& slot : slots) {
      if (slot.done != EventId{}) driver_.destroy(slot.done);
      if (slot.memory != nullptr) driver_.free_pinned(slot.memory);
    }
  }
  Driver& driver_;
};

Staging::Staging(DriverPtr driver, std::uint64_t piece_bytes)
    : driver_(std::move(driver)), piece_(piece_bytes) {}
Staging::~Staging() = default;

void Staging::write(Address to, const void* from, std::uint64_t bytes) {
  const auto* const source = static_cast<const std::byte*>(from);
  run(bytes, [&](Lane& lane, std::uint64_t first, std::uint64_t step) {
    std::size_t turn = 0;
    for (std::uint64_t at = first; at < bytes; at += step, ++turn) {
      Lane::Slot& slot = lane.slots[turn % 2];
      const std::uint64_t piece = std::min(piece_, bytes - at);
      lane.wait_for(slot);
      std::memcpy(slot.memory, source + at, piece);
      driver_->write(lane.stream, to + at, slot.memory, piece);
      lane.mark(slot);
    }
    for (Lane::Slot& slot : lane.slots) lane.wait_for(slot);
  });
}

void Staging::read(void* to, Address from, std::uint64_t bytes) {
  auto* const target = static_cast<std::byte*>(to);
  run(bytes, [&](Lane& lane, std::uint64_t first, std::uint64_t step) {
    const auto piece_at = [&](std::uint64_t at) { return std::min(piece_, bytes - at); };
    const auto finish = [&](std::uint64_t at, Lane::Slot& slot) {
      lane.wait_for(slot);
      std::memcpy(target + at, slot.memory, piece_at(at));
    };
    std::size_t turn = 0;
    std::uint64_t at = first;
    for (; at < bytes; at += step, ++turn) {
      Lane::Slot& slot = lane.slots[turn % 2];
      driver_->read(lane.stream, slot.memory, from + at, piece_at(at));
      lane.mark(slot);
      if (turn > 0) finish(at - step, lane.slots[(turn - 1) % 2]);
    }
    if (turn > 0) finish(at - step, lane.slots[(turn - 1) % 2]);
  });
}

void Staging::run(std::uint64_t bytes, const Copy& copy) {
  const std::uint64_t cpus = std::max(1u, std::thread::hardware_concurrency());
  const std::uint64_t lanes =
      std::clamp<std::uint64_t>(bytes / (piece_ * pieces_of_lane), 1, std::min(cpus, max_lanes));
  if (lanes == 1) return run_lane(0, piece_, copy);
  std::vector<std::exception_ptr> errors(lanes);
  with_memory_errors("cuda", [&] {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < lanes; ++i) {
      threads.emplace_back([&, i] {
        try {
          run_lane(i * piece_, lanes * piece_, copy);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

void Staging::run_lane(std::uint64_t first, std::uint64_t step, const Copy& copy) {
  std::unique_ptr<Lane> lane;
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      lane = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (lane == nullptr) lane = std::make_unique<Lane>(*driver_, piece_);
  copy(*lane, first, step);  // after an error the lane is not used again
  const std::scoped_lock lock(mutex_);
  free_.push_back(std::move(lane));
}

}  // namespace tenon::cuda
