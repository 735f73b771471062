#include "emit.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

namespace tenon::npu {
namespace {

// Fields of a conversion.
constexpr std::int64_t max_run_pixels = std::int64_t{1} << 18;
constexpr std::int64_t max_run_channels = 16384;
constexpr std::int64_t max_run_stride = (std::int64_t{1} << 26) - 1;

/// Pixels that lie evenly, and the axes around them; strides in elements.
struct Axis {
  std::int64_t size;
  std::int64_t stride;
};

std::vector<Axis> pixel_axes(const Operand& edge, bool image) {
  std::vector<Axis> axes;
  for (int i = 0; i < edge.shape.rank(); ++i) {
    if (i == (image ? 1 : edge.shape.rank() - 1)) continue;
    const Axis axis{edge.shape[i], edge.strides[static_cast<std::size_t>(i)] / 4};
    if (axis.size == 1) continue;
    if (!axes.empty() && axes.back().stride == axis.size * axis.stride) {
      axes.back() = {axes.back().size * axis.size, axis.stride};
    } else {
      axes.push_back(axis);
    }
  }
  if (axes.empty()) axes.push_back({1, 0});
  return axes;
}

isa::Load load_scales(const EmitContext& context, std::size_t index, std::int64_t offset,
                      std::int64_t bytes) {
  if (bytes > context.work.size) {
    throw Error(Errc::out_of_device_memory, context.bound.graph.layers[index].values.front(),
                fmt::format("factors of its channels need {} bytes on chip, {} are left for them",
                            bytes, context.work.size));
  }
  isa::Load load;
  load.layer = static_cast<std::uint16_t>(index);
  load.segment = static_cast<std::uint32_t>(isa::Segment::weight);
  load.offset = static_cast<std::uint32_t>(offset);
  load.ocm_addr = static_cast<std::uint32_t>(context.work.begin);
  load.row_bytes = static_cast<std::uint32_t>(bytes);
  return load;
}

}  // namespace

void emit_edge(const EmitContext& context, std::size_t index, isa::Segment segment,
               Instructions& out) {
  const Layer& layer = context.bound.graph.layers[index];
  const bool reads = layer.kind == Layer::Kind::quantize;
  const MapId id = reads ? layer.output : layer.input;
  const FeatureMap& map = context.bound.graph.map(id);
  const MapPlace& place = context.places[static_cast<std::size_t>(id)];
  const Operand& edge = layer.edge;
  const bool image = edge.shape.rank() == 4 && dims_of(edge.shape, Form::image) == map.dims;
  const int channel_axis = image ? 1 : edge.shape.rank() - 1;
  const std::int64_t channel_stride =
      map.dims.c == 1 ? 0 : edge.strides[static_cast<std::size_t>(channel_axis)] / 4;
  const std::vector<Axis> axes = pixel_axes(edge, image);
  const Axis run = axes.back();
  const std::int64_t c = std::int64_t{1} << place.log2c;
  const bool on_chip = place.where == MapPlace::Where::ocm;

  isa::Convert convert;
  convert.layer = static_cast<std::uint16_t>(index);
  convert.mode =
      static_cast<std::uint32_t>(reads ? isa::CvtMode::quantize : isa::CvtMode::dequantize);
  convert.plain_place = static_cast<std::uint32_t>(segment);
  convert.blocked_place = on_chip ? isa::ocm_place : static_cast<std::uint32_t>(isa::Segment::ftmp);
  convert.log2c = place.log2c;
  const std::int64_t scales = context.image.layers[index].scales;
  if (scales < 0) {
    convert.scale = static_cast<float>(reads ? 1 / map.step : map.step);
  } else {
    convert.flags = isa::flag_bit(isa::Flag::per_channel);
    out.push_back(load_scales(context, index, scales, map.dims.c * 4));
  }
  convert.block_stride = static_cast<std::uint32_t>(map.dims.pixels());
  if (std::max(run.stride, channel_stride) > max_run_stride ||
      std::min(run.stride, channel_stride) < 0) {
    throw Error(Errc::unsupported, layer.values.front(),
                fmt::format("strides of {} and {} elements; 0 to 2^26 - 1 can be converted",
                            run.stride, channel_stride));
  }
  convert.pixel_stride = static_cast<std::uint32_t>(run.stride);
  convert.channel_stride = static_cast<std::uint32_t>(channel_stride);

  // Every combination of the outer axes begins a run of pixels.
  std::vector<std::int64_t> at(axes.size() - 1, 0);
  for (std::int64_t pixel = 0; pixel < map.dims.pixels(); pixel += run.size) {
    std::int64_t base = edge.place.offset / 4;
    for (std::size_t i = 0; i < at.size(); ++i) base += at[i] * axes[i].stride;
    for (std::int64_t p = 0; p < run.size; p += max_run_pixels) {
      convert.pixels = static_cast<std::uint32_t>(std::min(max_run_pixels, run.size - p));
      for (std::int64_t ch = 0; ch < map.dims.c; ch += max_run_channels) {
        if (scales >= 0) {
          convert.scale_line =
              static_cast<std::uint32_t>((context.work.begin + ch * 4) / line_bytes);
        }
        convert.channels = static_cast<std::uint32_t>(std::min(max_run_channels, map.dims.c - ch));
        convert.plain_offset =
            static_cast<std::uint32_t>(4 * (base + p * run.stride + ch * channel_stride));
        convert.blocked_offset =
            static_cast<std::uint32_t>(place.offset + (ch / c * map.dims.pixels() + pixel + p) * c);
        out.push_back(convert);
      }
    }
    for (std::size_t i = at.size(); i-- > 0;) {
      if (++at[i] < axes[i].size) break;
      at[i] = 0;
    }
  }
}

}  // namespace tenon::npu
