// Double buffers in OCM for the tiles of a layer.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <npu/isa/integer_math.hpp>

namespace tenon::npu {

/// One or two buffers of one size. A buffer remembers what was loaded into it, so that a tile that
/// needs the same data reuses it.
class TileBuffers {
 public:
  using Key = std::array<std::int64_t, 6>;

  TileBuffers() = default;
  /// Takes `count` times `bytes` from `next`, which moves on.
  TileBuffers(std::int64_t& next, std::int64_t bytes, std::int64_t count) {
    if (bytes == 0) return;
    for (std::int64_t i = 0; i < count; ++i) {
      buffers_.push_back({next, {}, false});
      next += round_up(bytes, 32);
    }
  }

  struct Found {
    std::int64_t address;
    bool loaded;  ///< already holds the data of `key`
  };
  Found find(const Key& key) {
    for (const Buffer& buffer : buffers_) {
      if (buffer.valid && buffer.key == key) return {buffer.address, true};
    }
    Buffer& buffer = buffers_[turn_];
    turn_ = (turn_ + 1) % buffers_.size();
    buffer.key = key;
    buffer.valid = true;
    return {buffer.address, false};
  }

 private:
  struct Buffer {
    std::int64_t address;
    Key key;
    bool valid;
  };
  std::vector<Buffer> buffers_;
  std::size_t turn_ = 0;
};

}  // namespace tenon::npu
