#include "pack_rows.hpp"

#include "../kept_bytes.hpp"
#include "packed_weights.hpp"
#include "panel_layout.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

class PackRows final : public Recipe {
 public:
  std::string key(const Shape& shape) const override {
    return fmt::format("packed {}/{}", packed_layout, to_string(shape));
  }

  /// What is packed leaves memory piece by piece, so that there never are two copies of a large
  /// weight.
  std::shared_ptr<const void> make(const HostBuffer& rows, ThreadPool& pool,
                                   const Done& done) const override {
    constexpr std::int64_t piece_bytes = std::int64_t{8} << 20;
    const Shape& shape = rows.shape();
    auto weights = std::make_shared<PackedWeights>(shape.dtype(), shape[0], shape[1]);
    const std::int64_t panel_bytes =
        std::max<std::int64_t>(1, shape.bytes() / std::max<std::int64_t>(1, weights->panels()));
    const std::int64_t piece = std::max<std::int64_t>(1, piece_bytes / panel_bytes);
    for (std::int64_t begin = 0; begin < weights->panels(); begin += piece) {
      const Range panels{begin, std::min(begin + piece, weights->panels())};
      pool.run([&](Worker& worker) {
        weights->pack(rows.bytes(), panels, worker.thread, worker.threads);
      });
      const HostBuffer packed =
          rows.slice(0, panels.begin * panel_rows, std::min(panels.end * panel_rows, shape[0]));
      packed.release_pages();
      done(packed.shape().bytes());
    }
    return weights;
  }

  bool is_kept() const override { return true; }
  std::shared_ptr<const void> from_kept(const Shape& shape,
                                        const PreparedCache::Bytes& kept) const override {
    const std::size_t bytes = PackedWeights::packed_bytes(shape.dtype(), shape[0], shape[1]);
    if (!is_usable(kept.bytes, bytes)) return nullptr;
    return std::make_shared<const PackedWeights>(
        PackedWeights::borrow(shape.dtype(), shape[0], shape[1], kept.bytes, kept.owner));
  }
  std::span<const std::byte> bytes_to_keep(const void* made) const override {
    return static_cast<const PackedWeights*>(made)->bytes();
  }
};

}  // namespace

bool makes_packed_rows(const Recipe& recipe) noexcept {
  return dynamic_cast<const PackRows*>(&recipe) != nullptr;
}

std::shared_ptr<const Recipe> pack_rows() { return std::make_shared<const PackRows>(); }

}  // namespace tenon::cpu
