#include "prepared.hpp"

#include <tenon/error.hpp>
#include <tenon/prepare_progress.hpp>

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tenon::cpu {
namespace {

std::string place_text(const ConstantView& view) {
  return fmt::format(
      " at {} by {}", view.offset,
      fmt::join(std::span(view.strides).first(static_cast<std::size_t>(view.shape.rank())), ","));
}

/// Under which PreparedCache has what a request asks for. `name` is the constant's BoundConstants::key.
std::string key_of(const PrepareRequest& request, std::span<const ConstantSlot> slots,
                   const std::string& name) {
  const ConstantView& view = request.view;
  return fmt::format("cpu/{} {}{}", request.recipe->key(view.shape), name,
                     view.is_whole(slots[view.constant].shape) ? "" : place_text(view));
}

/// Whether its result is kept as bytes. Constants that the program made are no weights: nobody counts
/// or keeps them.
bool is_kept_of(const PrepareRequest& request, std::span<const ConstantSlot> slots) {
  return !slots[request.view.constant].folded && request.view.shape.bytes() > 0 &&
         request.recipe->is_kept();
}

/// The elements of a view, densely: the constant's own bytes where they lie so.
HostBuffer dense_value(const ConstantView& view, const HostBuffer& constant) {
  const DType dtype = view.shape.dtype();
  if (view.shape.elements() == 0) return HostBuffer::zeros(view.shape);
  if (is_contiguous(view.shape, view.strides) && constant.is_contiguous()) {
    const std::int64_t first = view.offset / block_bytes(dtype) * block_size(dtype);
    const std::int64_t all = constant.shape().elements();
    return constant.reshape({all})
        .slice(0, first, first + view.shape.elements())
        .reshape(view.shape.dims());
  }
  return HostBuffer::borrow(constant.view().data + view.offset, view.shape, view.strides)
      .contiguous();
}

}  // namespace

ConstantUse use_of(std::span<const PrepareRequest> requests, std::span<const ConstantSlot> slots,
                   std::vector<std::size_t> read) {
  ConstantUse use{std::move(read), {}};
  for (const PrepareRequest& request : requests) {
    const std::size_t constant = request.view.constant;
    if (is_kept_of(request, slots)) {
      use.kept.push_back({constant, key_of(request, slots, slots[constant].name)});
    } else {
      use.read.push_back(constant);
    }
  }
  return use;
}

std::vector<std::shared_ptr<const void>> prepare_constants(std::span<const PrepareRequest> requests,
                                                           std::span<const ConstantSlot> slots,
                                                           const BoundConstants& constants,
                                                           ThreadPool& pool) {
  std::vector<std::shared_ptr<const void>> results;
  for (const PrepareRequest& request : requests) {
    const ConstantView& view = request.view;
    const Recipe& recipe = *request.recipe;
    const ConstantSlot& slot = slots[view.constant];
    const std::string key = key_of(request, slots, constants.key(view.constant));
    results.push_back(constants.prepared.get(key, [&] {
      const Recipe::Done done = [&](std::int64_t bytes) {
        if (!slot.folded) PrepareProgress::advance(slot.name, static_cast<std::uint64_t>(bytes));
      };
      const bool is_kept = is_kept_of(request, slots);
      if (is_kept) {
        if (const auto kept = constants.prepared.kept(key)) {
          if (auto result = recipe.from_kept(view.shape, *kept)) {
            done(view.shape.bytes());
            return result;
          }
        }
      }
      if (!constants.buffers[view.constant].has_data()) {
        throw Error(Errc::corrupt, slot.name,
                    fmt::format("there is no data, and what is kept as '{}' is none of it", key));
      }
      auto result =
          recipe.make(dense_value(view, constants.buffers[view.constant].to_host()), pool, done);
      if (is_kept) constants.prepared.keep(key, {recipe.bytes_to_keep(result.get()), result});
      return result;
    }));
  }
  return results;
}

}  // namespace tenon::cpu
