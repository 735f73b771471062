// Constants in the forms that kernels compute from: made when weights are bound, once for all
// plans.
#pragma once

#include "thread_pool.hpp"

#include <tenon/backend.hpp>
#include <tenon/host_buffer.hpp>
#include <tenon/lowered.hpp>
#include <tenon/shape.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::cpu {

/// A constant of the program, or a view of one.
struct ConstantView {
  std::size_t constant = 0;
  std::int64_t offset = 0;  ///< bytes
  Shape shape;
  Strides strides{};

  bool is_whole(const Shape& constant_shape) const {
    return offset == 0 && shape == constant_shape && is_contiguous(shape, strides);
  }
  friend bool operator==(const ConstantView& a, const ConstantView& b) noexcept {
    return a.constant == b.constant && a.offset == b.offset && a.shape == b.shape &&
           a.strides == b.strides;
  }
};

/// How a constant is prepared. Immutable.
class Recipe {
 public:
  virtual ~Recipe() = default;
  /// What the result depends on besides the constant's bytes. It names the result's type, and for
  /// results that are kept on disk the version of their layout.
  virtual std::string key(const Shape& shape) const = 0;
  /// Who listens to how many bytes of the constant are ready.
  using Done = std::function<void(std::int64_t bytes)>;
  /// `value` is dense. Pages of a mapped file are given back as soon as they have been read.
  virtual std::shared_ptr<const void> make(const HostBuffer& value, ThreadPool& pool,
                                           const Done& done) const = 0;
  // For results that a PreparedCache keeps as bytes: whether these are such results; one from its
  // bytes, null where they are not ones of a constant of `shape`; and a result's bytes.
  virtual bool is_kept() const { return false; }
  virtual std::shared_ptr<const void> from_kept(const Shape& /*shape*/,
                                                const PreparedCache::Bytes& /*kept*/) const {
    return nullptr;
  }
  virtual std::span<const std::byte> bytes_to_keep(const void* /*made*/) const { return {}; }
};

struct PrepareRequest {
  ConstantView view;
  std::shared_ptr<const Recipe> recipe;

  friend bool operator==(const PrepareRequest& a, const PrepareRequest& b) {
    return a.view == b.view &&
           (a.recipe == b.recipe || a.recipe->key(a.view.shape) == b.recipe->key(b.view.shape));
  }
};

/// Which prepared constant an operand is: one, or one for each iteration of the loops around it.
struct PreparedIndex {
  std::int64_t first = 0;
  LoopSteps step{};

  std::size_t in(const LoopSteps& iteration) const noexcept {
    std::int64_t number = first;
    for (std::size_t d = 0; d < max_loop_depth; ++d) number += iteration[d] * step[d];
    return static_cast<std::size_t>(number);
  }
};

/// Which constants the requests need, besides `read` by tasks.
ConstantUse use_of(std::span<const PrepareRequest> requests, std::span<const ConstantSlot> slots,
                   std::vector<std::size_t> read);

/// What the requests ask for, in their order: made, or found in the cache.
std::vector<std::shared_ptr<const void>> prepare_constants(std::span<const PrepareRequest> requests,
                                                           std::span<const ConstantSlot> slots,
                                                           const BoundConstants& constants,
                                                           ThreadPool& pool);

}  // namespace tenon::cpu
