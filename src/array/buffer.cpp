#include "array/object_slot.hpp"
#include "array/storage.hpp"
#include "memory/ledger.hpp"
#include "memory/malloc_for.hpp"

#include <tenon/buffer.hpp>
#include <tenon/error.hpp>
#include <tenon/fork_aware_mutex.hpp>
#include <tenon/memory_errors.hpp>
#include <tenon/trace.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tenon {

namespace {
constinit const BufferFormat plain_format;
}

/// Shared by all handles of one array. Only an array whose work may still be running takes the
/// lock: a complete one can be read in the child of a fork(), whatever the parent's threads did.
struct Buffer::Readiness {
  enum class State { pending, complete, failed };

  explicit Readiness(ReadyCheck ready_check)
      : state(ready_check ? State::pending : State::complete), check(std::move(ready_check)) {}

  explicit Readiness(Event work) : event(std::move(work)) {}

  bool poll() {
    if (is_settled()) return true;
    if (event && !event->is_ready()) return false;
    ReadyCheck finished;  // destroyed after the lock: it may hold the last handle of other arrays
    const std::scoped_lock lock(mutex);
    if (is_settled()) return true;
    std::exception_ptr reason;
    if (event) {
      reason = event->error();
    } else {
      try {
        if (!check()) return false;
      } catch (...) {
        reason = std::current_exception();
      }
    }
    finished = std::exchange(check, {});
    settle(std::move(reason));
    return true;
  }

  /// Waits for the event, where there is one.
  void wait_until_ready() const {
    if (event && !is_settled()) event->wait_until_ready();
  }

  void poison(std::exception_ptr reason) {
    ReadyCheck dropped;
    const std::scoped_lock lock(mutex);
    if (state.load(std::memory_order_relaxed) == State::failed) return;  // the first is the cause
    dropped = std::exchange(check, {});
    settle(std::move(reason));
  }

  void rethrow() const {
    if (state.load(std::memory_order_acquire) == State::failed) std::rethrow_exception(error);
  }

  bool is_settled() const noexcept {
    return state.load(std::memory_order_acquire) != State::pending;
  }
  /// With the lock held.
  void settle(std::exception_ptr reason) {
    const State outcome = reason == nullptr ? State::complete : State::failed;
    error = std::move(reason);
    state.store(outcome, std::memory_order_release);
  }

  std::atomic<State> state{State::pending};
  ForkAwareMutex mutex{"Buffer"};
  ReadyCheck check;
  const std::optional<Event> event;  // instead of the check
  std::exception_ptr error;          // set once, before `failed`
};

Buffer::~Buffer() = default;
Buffer::Buffer(const Buffer& other) = default;
Buffer::Buffer(Buffer&& other) noexcept = default;
Buffer& Buffer::operator=(const Buffer& other) = default;
Buffer& Buffer::operator=(Buffer&& other) noexcept = default;

Buffer::Buffer(const Shape& shape, ReadyCheck check)
    : shape_(shape), readiness_(std::make_shared<Readiness>(std::move(check))) {}

Buffer::Buffer(const Shape& shape, MemChunk chunk, std::uint64_t offset_bytes, ReadyCheck check)
    : Buffer(shape, std::move(check)) {
  set_data(std::move(chunk), offset_bytes);
}

Buffer Buffer::ready_at(const Event& event) const {
  Buffer result = *this;
  result.readiness_ = std::make_shared<Readiness>(event);
  return result;
}

Buffer Buffer::allocate(const Shape& shape, MemRegion& region) {
  Buffer result(shape);
  result.malloc_on(region);
  return result;
}

void Buffer::set_data(MemChunk chunk, std::uint64_t offset_bytes) {
  if (is_object(shape_.dtype()) &&
      (chunk.deleter().target<objects::FreeSlot>() == nullptr || shape_.rank() > 0)) {
    throw Error(Errc::bad_argument, "Buffer",
                fmt::format("object_buffer() makes a {}, not memory", to_string(shape_)));
  }
  const auto need = static_cast<std::uint64_t>(shape_.bytes());
  const std::uint64_t have = chunk.size_bytes();
  if (offset_bytes > have || need > have - offset_bytes) {
    throw Error(Errc::out_of_range, "Buffer",
                fmt::format("{} needs {} bytes, and a chunk of {} has too few from {}",
                            to_string(shape_), need, have, offset_bytes));
  }
  chunk_ = std::move(chunk);
  offset_ = offset_bytes;
}

Buffer& Buffer::malloc_on(MemRegion& region) {
  if (is_object(shape_.dtype())) {
    set_data(objects::new_slot(shape_.dtype(), region));
    return *this;
  }
  // An array without elements gets memory, too, so that it has a region.
  const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(shape_.bytes(), 1));
  set_data(malloc_for(region, size, 64, [&] { return to_string(shape_); }));
  return *this;
}

MemPtr Buffer::data() const {
  if (!has_data()) {
    throw Error(Errc::call_order, "Buffer",
                fmt::format("{} has no data: it was not made yet, or was donated or moved from",
                            to_string(shape_)));
  }
  if (chunk_.is_freed()) {
    throw Error(Errc::stale_handle, "Buffer",
                fmt::format("the memory of {} was freed", to_string(shape_)));
  }
  return chunk_.begin() + static_cast<std::int64_t>(offset_);
}

MemRegion& Buffer::region() const {
  static_cast<void>(data());
  return chunk_.region();
}

bool Buffer::is_on(const MemRegion& region) const noexcept { return chunk_.is_on(region); }

bool Buffer::is_unique() const noexcept {
  const bool is_ours = chunk_ && (!chunk_.is_placed() || is_object(shape_.dtype()));
  return is_ours && chunk_.is_last_handle() && chunk_.auto_free();
}

bool Buffer::is_ready() const { return readiness_ == nullptr || readiness_->poll(); }

bool Buffer::wait_for(std::chrono::nanoseconds timeout, std::chrono::nanoseconds interval) const {
  if (readiness_ == nullptr || readiness_->is_settled()) {
    if (readiness_ != nullptr) readiness_->rethrow();
    return true;
  }
  const auto start = std::chrono::steady_clock::now();
  if (timeout == std::chrono::nanoseconds::max()) readiness_->wait_until_ready();
  while (!is_ready()) {
    const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed >= timeout) return false;
    std::this_thread::sleep_for(std::min(interval, timeout - elapsed));
  }
  readiness_->rethrow();
  return true;
}

void Buffer::wait() const { static_cast<void>(wait_for(std::chrono::nanoseconds::max())); }

void Buffer::poison(std::exception_ptr error) {
  if (error == nullptr) throw Error(Errc::bad_argument, "Buffer", "poisoned without an error");
  if (readiness_ == nullptr) readiness_ = std::make_shared<Readiness>(ReadyCheck());
  readiness_->poison(std::move(error));
}

HostView Buffer::host_view() const {
  const MemPtr begin = data();
  wait();
  return {begin.cptr(), shape_};
}

HostBuffer Buffer::to_host() const {
  const MemPtr begin = data();
  wait();
  if (!begin.has_cptr()) {
    HostBuffer copy = HostBuffer::uninitialized(shape_);
    chunk_.read(copy.view_.data, offset_, static_cast<std::uint64_t>(shape_.bytes()));
    return copy;
  }
  const HostView view(begin.cptr(), shape_);
  if (const auto* keep = chunk_.deleter().target<HostBuffer::KeepStorage>()) {
    return {keep->storage, view};
  }
  auto storage = std::make_shared<HostBuffer::Storage>();
  storage->chunk = chunk_;
  return {std::move(storage), view};
}

Buffer Buffer::to(MemRegion& region) const {
  const MemPtr begin = data();
  if (is_on(region)) return *this;
  wait();
  Buffer result = allocate(shape_, region);
  result.format_ = format_;
  const auto bytes = static_cast<std::uint64_t>(shape_.bytes());
  if (bytes > 0) region.copy(result.data(), chunk_.region(), begin, bytes);
  return result;
}

Buffer Buffer::start_copy(MemRegion& region, std::shared_ptr<Trace> trace) const {
  static_cast<void>(data());  // throws without data
  if (is_on(region)) return *this;
  MemRegion& from = this->region();
  Buffer result = allocate(shape_, region);
  result.format_ = format_;
  // Copies to a device, and from it, have a thread each.
  WorkQueue& queue = region.is_host() ? from.ledger_->outgoing : region.ledger_->incoming;
  EventSource source;
  const Event event = source.event();
  WorkQueue::Job copy = [trace = std::move(trace), given = *this, made = result] {
    given.wait();
    const auto begun = Trace::Clock::now();
    const auto bytes = static_cast<std::uint64_t>(given.shape_.bytes());
    with_memory_errors("Buffer::start_copy", [&] {
      if (bytes > 0) made.region().copy(made.data(), given.region(), given.data(), bytes);
    });
    if (trace) {
      trace->add(made.region().is_host() ? "copies from devices" : "copies to devices",
                 fmt::format("{} to {}", given.region().name(), made.region().name()), begun,
                 Trace::Clock::now(), {{"bytes", fmt::format("{}", bytes)}});
    }
  };
  const std::shared_ptr<Readiness> readiness = readiness_;
  if (readiness == nullptr || !readiness->event || is_ready()) {
    queue.push(std::move(copy), std::move(source));
  } else {
    // Not in the queue before it can be made: others would wait behind it.
    const auto later = std::make_shared<EventSource>(std::move(source));
    readiness->event->then([&queue, copy, later]() mutable {
      try {
        queue.push(std::move(copy), std::move(*later));
      } catch (...) {
        later->fail(std::current_exception());
      }
    });
  }
  return result.ready_at(event);
}

Buffer Buffer::with_shape(const Shape& shape) const {
  if (shape.dtype() != shape_.dtype() && (is_object(shape.dtype()) || is_object(shape_.dtype()))) {
    throw Error(Errc::shape_mismatch, "Buffer",
                fmt::format("{} is no {}", to_string(shape_), to_string(shape)));
  }
  if (shape.bytes() != shape_.bytes()) {
    throw Error(Errc::shape_mismatch, "Buffer",
                fmt::format("{} and {} differ in bytes", to_string(shape_), to_string(shape)));
  }
  Buffer result = *this;
  result.shape_ = shape;
  result.format_.reset();
  return result;
}

const BufferFormat& Buffer::format() const noexcept {
  return format_ != nullptr ? *format_ : plain_format;
}

Buffer& Buffer::set_format(BufferFormat format) {
  const Layout layout = layout_of(shape_);
  const Layout software = format.software.value_or(layout.plain());
  if (software.is_blocked()) {
    throw Error(Errc::bad_argument, "Buffer",
                fmt::format("{} is no software layout", to_string(software)));
  }
  const Shape values = relayout(shape_, layout, software, format.extent);
  if (format.quant) {
    const QuantParams& quant = *format.quant;
    if (!is_integer(shape_.dtype())) {
      throw Error(Errc::bad_argument, "Buffer",
                  fmt::format("{}: quantisation of what is no integer", to_string(shape_)));
    }
    const std::optional<int> axis = software.find_axis(quant.axis, values.rank());
    if (quant.is_per_channel() && !axis) {
      throw Error(Errc::bad_argument, "Buffer",
                  fmt::format("{} has no axis {} for the channels of its quantisation",
                              to_string(software), quant.axis));
    }
    quant.check(axis ? values[*axis] : 1);
  }
  format_ = std::make_shared<const BufferFormat>(std::move(format));
  return *this;
}

void Buffer::fill_pieces(
    DType dtype,
    const std::function<void(std::size_t first, std::size_t count, void* piece)>& make) {
  if (dtype != shape_.dtype()) {
    throw Error(Errc::bad_type, "Buffer",
                fmt::format("{} filled with {}", to_string(shape_), name(dtype)));
  }
  static_cast<void>(data());  // throws without data
  wait();
  const auto size = static_cast<std::size_t>(block_bytes(dtype));
  const auto total = static_cast<std::size_t>(shape_.elements());
  constexpr std::size_t piece_bytes = std::size_t{1} << 16;
  std::vector<std::max_align_t> staging(piece_bytes / sizeof(std::max_align_t));
  for (std::size_t done = 0; done < total;) {
    const std::size_t count = std::min(total - done, piece_bytes / size);
    make(done, count, staging.data());
    chunk_.write(staging.data(), offset_ + done * size, count * size);
    done += count;
  }
}

}  // namespace tenon
