#include "array/size_text.hpp"
#include "ops/builder.hpp"
#include "ops/checks.hpp"
#include "ops/view.hpp"

#include <tenon/ops/reshape.hpp>

#include <array>
#include <vector>

namespace tenon {

TENON_DEFINE_OP(reshape, Reshape);

namespace {

/// The product of the known sizes, and the only size that is not known: 0 when there is none,
/// unknown_dim when there are several.
struct Count {
  std::int64_t known = 1;
  std::int64_t open = 0;
};

Count count_elements(const Shape& shape) {
  Count count;
  for (const std::int64_t dim : shape.dims()) {
    if (is_static(dim)) {
      count.known = checked_multiply(count.known, dim);
    } else {
      count.open = count.open == 0 ? dim : unknown_dim;
    }
  }
  return count;
}

/// The size that replaces -1, when the product of the other sizes is `others`.
std::int64_t deduce(const IntList& dims, const Shape& in, std::int64_t others) {
  if (others == 0) {  // C3
    fail(Errc::bad_shape, Reshape::name,
         fmt::format("{} to {}: -1 beside a size of 0 can be anything", to_string(in),
                     sizes_text(dims.span())));
  }
  const Count count = count_elements(in);
  if (count.open != 0) return count.known == others ? count.open : unknown_dim;
  if (count.known % others != 0) {  // C2
    fail(Errc::bad_shape, Reshape::name,
         fmt::format("{} does not divide into {}", to_string(in), sizes_text(dims.span())));
  }
  return count.known / others;
}

void keep_innermost(const Shape& x, std::int64_t size, const std::string& to) {
  const std::int64_t own = x.rank() == 0 ? 1 : x[x.rank() - 1];
  if (is_block(x.dtype()) && own != size) {  // C4
    fail(Errc::bad_shape, Reshape::name,
         fmt::format("{} to {}: blocks run along the innermost axis", to_string(x), to));
  }
}

Shape infer_like(const Shape& x, const Shape& like) {
  const std::string sizes = "the sizes of " + to_string(like);
  if (x.is_static() && like.is_static() && x.elements() != like.elements()) {  // C2
    fail(Errc::bad_shape, Reshape::name,
         fmt::format("{} has {} elements, {} are {}", to_string(x), x.elements(), sizes,
                     like.elements()));
  }
  keep_innermost(x, like.rank() == 0 ? 1 : like[like.rank() - 1], sizes);
  return like.without_tags().with_dtype(x.dtype());
}

}  // namespace

Shape Reshape::infer(std::span<const Shape> in) const {
  if (in.size() > 1) {
    if (!dims.empty()) fail(Errc::bad_attribute, name, "both dims and an array of sizes");  // C5
    return infer_like(in[0], in[1]);
  }
  std::int64_t others = 1;
  std::vector<Axis> axes;
  int deduced = -1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < -1 || (dims[i] == -1 && deduced >= 0)) {  // C1
      fail(Errc::bad_shape, name,
           fmt::format("{} to {}: sizes are known and at least 0, and at most one is -1",
                       to_string(in[0]), sizes_text(dims.span())));
    }
    if (dims[i] == -1) {
      deduced = static_cast<int>(i);
    } else {
      others = checked_multiply(others, dims[i]);
    }
    axes.emplace_back(dims[i] == -1 ? unknown_dim : dims[i]);
  }
  if (deduced >= 0) {
    axes[static_cast<std::size_t>(deduced)].size = deduce(dims, in[0], others);
  } else if (in[0].is_static() && in[0].elements() != others) {  // C2
    fail(Errc::bad_shape, name,
         fmt::format("{} has {} elements, {} has {}", to_string(in[0]), in[0].elements(),
                     sizes_text(dims.span()), others));
  }
  keep_innermost(in[0], axes.empty() ? 1 : axes.back().size, sizes_text(dims.span()));
  return {std::span<const Axis>(axes), in[0].dtype()};
}

void Reshape::reference(std::span<const HostView> in, const HostView& out) const {
  copy_reshaped(in[0], out);
}

bool Reshape::view(const HostView& in, const Shape& out, ViewPlacement& placement) const {
  return place_reshaped(in, out, placement);
}

bool place_reshaped(const HostView& in, const Shape& out, ViewPlacement& placement) {
  placement = {};
  if (in.is_contiguous()) {
    placement.strides = dense_strides(out);
    return true;
  }
  // Runs of evenly spaced elements, innermost first: adjacent axes with compatible strides are one
  // run.
  struct Run {
    std::int64_t size, step;
  };
  std::array<Run, max_rank> runs{};
  int count = 0;
  for (int i = in.shape.rank() - 1; i >= 0; --i) {
    const std::int64_t block = i == in.shape.rank() - 1 ? block_size(out.dtype()) : 1;
    const Run axis{in.shape[i] / block, in.strides[static_cast<std::size_t>(i)]};
    if (axis.size == 1) continue;
    if (count > 0 && axis.step == runs[static_cast<std::size_t>(count - 1)].size *
                                      runs[static_cast<std::size_t>(count - 1)].step) {
      runs[static_cast<std::size_t>(count - 1)].size *= axis.size;
    } else {
      runs[static_cast<std::size_t>(count++)] = axis;
    }
  }
  // Each run must be cut into whole axes of the result.
  int used = 0;
  std::int64_t taken = 1;
  for (int i = out.rank() - 1; i >= 0; --i) {
    const std::int64_t block = i == out.rank() - 1 ? block_size(out.dtype()) : 1;
    const std::int64_t size = out[i] / block;
    auto& step = placement.strides[static_cast<std::size_t>(i)];
    if (size == 1) {
      step = block_bytes(out.dtype());
      continue;
    }
    const Run& run = runs[static_cast<std::size_t>(used)];
    step = run.step * taken;
    taken *= size;
    if (run.size % taken != 0) return false;
    if (run.size == taken) {
      ++used;
      taken = 1;
    }
  }
  return true;
}

std::vector<Tensor> Reshape::gradient(const Backward& at) const {
  std::vector<Tensor> result(at.inputs.size());
  result[0] = reshape_like(at.upstream, at.inputs[0]);
  return result;
}

Tensor reshape(const Tensor& x, std::span<const std::int64_t> dims,
               const std::source_location& where) {
  return record(Reshape{.dims = located(where, Reshape::name, [&] { return IntList(dims); })}, {x},
                where);
}

Tensor reshape(const Tensor& x, std::initializer_list<Axis> dims,
               const std::source_location& where) {
  std::vector<std::int64_t> sizes;
  for (const Axis& axis : dims) sizes.push_back(axis.size);
  return tagged(reshape(x, sizes, where), {dims.begin(), dims.size()}, Reshape::name, where);
}

Tensor reshape_like(const Tensor& x, const Tensor& like, const std::source_location& where) {
  if (like.shape(where).is_static()) return reshape(x, like.shape().dims(), where);
  return record(Reshape{}, {x, like}, where);
}

}  // namespace tenon
