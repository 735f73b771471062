#include <tenon/buffer.hpp>
#include <tenon/error.hpp>

#include <cstdint>
#include <cstring>
#include <iterator>
#include <ostream>

#include <fmt/format.h>

namespace tenon {
namespace {

struct DumpFormat {
  bool software;  // S, not H
  bool real;      // F, not Q
  bool text;      // T, not B
};

[[noreturn]] void refuse(const Shape& shape, std::string_view format, std::string_view why) {
  throw Error(Errc::bad_argument, "Buffer::dump",
              fmt::format("{} as '{}': {}", to_string(shape), format, why));
}

DumpFormat parse_format(const Shape& shape, std::string_view format) {
  const auto choose = [&](std::size_t at, char yes, char no) {
    if (format.size() == 3 && (format[at] == yes || format[at] == no)) return format[at] == yes;
    refuse(shape, format, "expected no letters, or one each of H or S, F or Q, B or T");
  };
  return {choose(0, 'S', 'H'), choose(1, 'F', 'Q'), choose(2, 'T', 'B')};
}

void write_bytes(std::ostream& out, const char* bytes, std::size_t size) {
  out.write(bytes, static_cast<std::streamsize>(size));
  if (!out) throw Error(Errc::io_error, "Buffer::dump", "the stream takes no more");
}

/// The channel of each index along one axis of memory, or of a block's lane.
struct ChannelAxis {
  std::optional<int> axis;   // absent: one factor for all
  std::optional<int> lanes;  // the axis of a block's lanes
  std::int64_t block = 1;

  ChannelAxis(const QuantParams& quant, const Layout& layout, int rank) {
    if (!quant.is_per_channel()) return;
    axis = layout.find_axis(quant.axis, rank);
    if (layout.block_axis() == quant.axis) {
      lanes = rank - 1;
      block = layout.block_size();
    }
  }
  std::int64_t channel(std::span<const std::int64_t> index) const {
    if (!axis) return 0;
    const auto at = [&](int i) { return index[static_cast<std::size_t>(i)]; };
    return at(*axis) * block + (lanes ? at(*lanes) : 0);
  }
};

/// Dequantised integers; padding stays 0.
HostBuffer dequantise(const HostBuffer& array, const Layout& layout, const QuantParams& quant) {
  const Shape& shape = array.shape();
  const ChannelAxis channels(quant, layout, shape.rank());
  const auto known =
      static_cast<std::int64_t>(std::max(quant.scale.size(), quant.normratio.size()));
  HostBuffer result = HostBuffer::uninitialized(shape.with_dtype(f32));
  float* out = result.mutable_values<float>().data();
  const std::byte* from = array.bytes();
  const std::int64_t size = block_bytes(shape.dtype());
  for_each_index(shape, [&](std::span<const std::int64_t> index) {
    const std::int64_t channel = channels.channel(index);
    const auto q = static_cast<double>(load_as_int64(shape.dtype(), from));
    *out++ = channel < known ? static_cast<float>(q * quant.factor(channel)) : 0.0f;
    from += size;
  });
  return result;
}

void write_text(std::ostream& out, const HostBuffer& array) {
  const DType dtype = array.shape().dtype();
  const std::int64_t size = block_bytes(dtype);
  const std::byte* element = array.bytes();
  constexpr std::size_t gathered = std::size_t{1} << 16;
  fmt::memory_buffer lines;
  for (std::int64_t i = array.shape().elements(); i > 0; --i, element += size) {
    const auto to = std::back_inserter(lines);
    if (dtype == f32) {  // the shortest text that reads back as the same number
      fmt::format_to(to, "{}\n", static_cast<float>(load_as_double(dtype, element)));
    } else if (dtype == u64) {
      std::uint64_t value = 0;
      std::memcpy(&value, element, sizeof value);
      fmt::format_to(to, "{}\n", value);
    } else if (is_floating(dtype) || is_stored(dtype)) {
      fmt::format_to(to, "{}\n", load_as_double(dtype, element));
    } else {
      fmt::format_to(to, "{}\n", load_as_int64(dtype, element));
    }
    if (lines.size() >= gathered) {
      write_bytes(out, lines.data(), lines.size());
      lines.clear();
    }
  }
  write_bytes(out, lines.data(), lines.size());
}

}  // namespace

void Buffer::dump(std::ostream& out, std::string_view format) const {
  if (is_object(shape_.dtype())) refuse(shape_, format, "save_object() makes bytes of an object");
  const auto bytes_of = [](const HostBuffer& array) {
    return reinterpret_cast<const char*>(array.bytes());
  };
  if (format.empty()) {
    const HostBuffer raw = to_host();
    return write_bytes(out, bytes_of(raw), static_cast<std::size_t>(shape_.bytes()));
  }
  const DumpFormat wanted = parse_format(shape_, format);
  const bool is_real =
      is_floating(shape_.dtype()) || is_block(shape_.dtype()) || is_complex(shape_.dtype());
  Layout layout = layout_of(shape_);
  if (!wanted.software && !layout.is_blocked()) {
    refuse(shape_, format, "an array in software layout has no hardware layout");
  }
  if (!wanted.real && is_real) refuse(shape_, format, "real numbers have no fixed-point values");

  HostBuffer array = to_host();
  if (wanted.software) {
    const Layout software = this->format().software.value_or(layout.plain());
    if (software != layout) array = relayout(array, layout, software, this->format().extent);
    layout = software;
  }
  if (is_complex(shape_.dtype())) {
    array = array.view_as_real();
  } else if (wanted.real && !is_real) {
    array = dequantise(array, layout, this->format().quant.value_or(QuantParams{}));
  } else if (wanted.real && shape_.dtype() != f32 && shape_.dtype() != f64) {
    array = array.to(f32);
  }
  if (wanted.text) return write_text(out, array);
  write_bytes(out, bytes_of(array), static_cast<std::size_t>(array.shape().bytes()));
}

}  // namespace tenon
