#include <tenon/error.hpp>
#include <tenon/log.hpp>
#include <tenon/npu/isa/host_dma.hpp>
#include <tenon/npu/isa/registers.hpp>

#include <algorithm>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace tenon::npu::isa {
namespace {

/// Most transfers end while the host looks so often; between later looks it sleeps.
constexpr int quick_looks = 64;
constexpr std::chrono::microseconds look{50};
/// As much as the register dma_len and an alignment of 64 bytes allow.
constexpr std::uint64_t longest_transfer = 0xFFFF'FFC0;

class Looks {
 public:
  void pause() {
    if (++count_ < quick_looks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(look);
    }
  }

 private:
  int count_ = 0;
};

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

HostDma::HostDma(RegRegion& npu, MemRegion& xchg, const HostDmaOptions& options)
    : npu_(npu), patience_(options.patience) {
  const std::uint64_t capacity = xchg.usage().capacity_bytes;
  const std::uint64_t size =
      capacity == 0 ? options.staging_bytes : std::min(options.staging_bytes, capacity / 4);
  staging_ = xchg.malloc(size);
}

void HostDma::read(void* to, std::uint64_t from, std::uint64_t size) {
  const std::scoped_lock lock(mutex_);
  for (std::uint64_t done = 0; done < size; done += staging_.size_bytes()) {
    fetch(static_cast<std::byte*>(to) + done, from + done,
          std::min(size - done, staging_.size_bytes()));
  }
}

void HostDma::write(std::uint64_t to, const void* from, std::uint64_t size) {
  const std::scoped_lock lock(mutex_);
  for (std::uint64_t done = 0; done < size; done += staging_.size_bytes()) {
    store(to + done, static_cast<const std::byte*>(from) + done,
          std::min(size - done, staging_.size_bytes()));
  }
}

void HostDma::copy(std::uint64_t to, std::uint64_t from, std::uint64_t size) {
  const std::scoped_lock lock(mutex_);
  const bool overlap = std::max(to, from) - std::min(to, from) < size;
  if (!overlap) {
    for (std::uint64_t done = 0; done < size; done += longest_transfer) {
      transfer(to + done, from + done, std::min(size - done, longest_transfer));
    }
    return;
  }
  // Through CPU memory, in the order in which no piece overwrites a later one.
  std::vector<std::byte> bytes(std::min(size, staging_.size_bytes()));
  for (std::uint64_t done = 0; done < size; done += bytes.size()) {
    const std::uint64_t piece = std::min<std::uint64_t>(size - done, bytes.size());
    const std::uint64_t at = to < from ? done : size - done - piece;
    fetch(bytes.data(), from + at, piece);
    store(to + at, bytes.data(), piece);
  }
}

void HostDma::fetch(void* to, std::uint64_t from, std::uint64_t size) {
  transfer(staging_.begin().addr(), from, size);
  staging_.read(to, 0, size);
}

void HostDma::store(std::uint64_t to, const void* from, std::uint64_t size) {
  staging_.write(from, 0, size);
  transfer(to, staging_.begin().addr(), size);
}

void HostDma::transfer(std::uint64_t to, std::uint64_t from, std::uint64_t size) {
  for (bool again = false;; again = true) {
    const End end = attempt(to, from, static_cast<std::uint32_t>(size));
    if (end == End::done) return;
    const bool failed = end == End::failed;
    const std::string what =
        failed ? fmt::format("host DMA of {} bytes from {:#x} to {:#x} failed", size, from, to)
               : fmt::format("host DMA of {} bytes from {:#x} to {:#x} has not ended after {} ms",
                             size, from, to, milliseconds(patience_));
    if (again) throw Error(failed ? Errc::device_error : Errc::device_timeout, npu_.name(), what);
    log(LogLevel::warning, fmt::format("npu: {}; it is repeated", what));
    if (!failed) end_by_reset();
  }
}

/// Again and again while resets interrupt it: done, failed or timeout.
HostDma::End HostDma::attempt(std::uint64_t to, std::uint64_t from, std::uint32_t size) {
  const auto until = Clock::now() + patience_;
  for (;;) {
    const End end = run(to, from, size, until);
    if (end != End::reset) return end;
    if (Clock::now() >= until) return End::timeout;
  }
}

HostDma::End HostDma::run(std::uint64_t to, std::uint64_t from, std::uint32_t size,
                          Clock::time_point until) {
  // Writes are lost during a reset, and an earlier transfer may be one that was given up.
  for (Looks looks;
       bits::resetting.get(get(reg::status)) != 0 || bits::dma_busy.get(get(reg::dma_status)) != 0;
       looks.pause()) {
    if (Clock::now() >= until) return End::timeout;
  }
  set(reg::dma_len, size);
  set(reg::dma_src_lo, static_cast<std::uint32_t>(from));
  set(reg::dma_src_hi, static_cast<std::uint32_t>(from >> 32));
  set(reg::dma_dst_lo, static_cast<std::uint32_t>(to));
  set(reg::dma_dst_hi, static_cast<std::uint32_t>(to >> 32));
  // A reset from now on clears all of them; one before has cleared what was written first.
  if (get(reg::dma_len) != size) return End::reset;
  set(reg::dma_ctrl, bits::dma_start.mask());
  for (Looks looks;; looks.pause()) {
    const std::uint32_t status = get(reg::dma_status);
    if (bits::dma_busy.get(status) == 0) {
      if (bits::dma_done.get(status) == 0 || get(reg::dma_len) != size) return End::reset;
      return bits::dma_error.get(status) != 0 ? End::failed : End::done;
    }
    if (Clock::now() >= until) return End::timeout;
  }
}

void HostDma::end_by_reset() {
  set(reg::control, bits::reset.mask());
  const auto until = Clock::now() + patience_;
  for (Looks looks; bits::resetting.get(get(reg::status)) != 0; looks.pause()) {
    if (Clock::now() >= until) {
      throw Error(Errc::device_timeout, npu_.name(),
                  fmt::format("a reset is not complete after {} ms", milliseconds(patience_)));
    }
  }
}

std::uint32_t HostDma::get(std::uint32_t reg) const {
  const auto value = static_cast<std::uint32_t>(npu_.read(reg, true));
  if (value == gone && static_cast<std::uint32_t>(npu_.read(reg::id, true)) == gone) {
    throw Error(Errc::device_lost, npu_.name(), "the device is gone");
  }
  return value;
}

void HostDma::set(std::uint32_t reg, std::uint32_t value) { npu_.write(reg, value, true); }

}  // namespace tenon::npu::isa
