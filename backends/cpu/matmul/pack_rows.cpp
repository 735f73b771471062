#include "pack_rows.hpp"

#include "../kept_bytes.hpp"
#include "../task.hpp"
#include "packed_weights.hpp"
#include "panel_layout.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

struct MatrixSize {
  std::int64_t outputs, inputs;
};
MatrixSize matrix_of(const Shape& shape) { return {row_count(shape), row_size(shape)}; }

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
    const auto [outputs, inputs] = matrix_of(shape);
    const HostBuffer matrix = rows.reshape({outputs, inputs});
    auto weights = std::make_shared<PackedWeights>(shape.dtype(), outputs, inputs);
    const std::int64_t panel_bytes =
        std::max<std::int64_t>(1, shape.bytes() / std::max<std::int64_t>(1, weights->panels()));
    const std::int64_t piece = std::max<std::int64_t>(1, piece_bytes / panel_bytes);
    for (std::int64_t begin = 0; begin < weights->panels(); begin += piece) {
      const Range panels{begin, std::min(begin + piece, weights->panels())};
      pool.run([&](Worker& worker) {
        weights->pack(rows.bytes(), panels, worker.thread, worker.threads);
      });
      const HostBuffer packed =
          matrix.slice(0, panels.begin * panel_rows, std::min(panels.end * panel_rows, outputs));
      packed.release_pages();
      done(packed.shape().bytes());
    }
    return weights;
  }

  bool is_kept() const override { return true; }
  std::shared_ptr<const void> from_kept(const Shape& shape,
                                        const PreparedCache::Bytes& kept) const override {
    const auto [outputs, inputs] = matrix_of(shape);
    const std::size_t bytes = PackedWeights::packed_bytes(shape.dtype(), outputs, inputs);
    if (!is_usable(kept.bytes, bytes)) return nullptr;
    return std::make_shared<const PackedWeights>(
        PackedWeights::borrow(shape.dtype(), outputs, inputs, kept.bytes, kept.owner));
  }
  std::span<const std::byte> bytes_to_keep(const void* made) const override {
    return static_cast<const PackedWeights*>(made)->bytes();
  }
};

}  // namespace

bool are_groups_packed(const Operand& w) noexcept {
  return w.place.kind == Place::Kind::constant && PackedWeights::is_packable(w.shape.dtype()) &&
         (w.shape[0] <= 1 || w.shape[1] % panel_rows == 0);
}

bool makes_packed_rows(const Recipe& recipe) noexcept {
  return dynamic_cast<const PackRows*>(&recipe) != nullptr;
}

std::shared_ptr<const Recipe> pack_rows() { return std::make_shared<const PackRows>(); }

}  // namespace tenon::cpu
