#include "pack.hpp"
#include "panel_layout.hpp"

// Byte layouts of GGUF's block types: dependency-free facts that the library's own dequantisation
// reads too.
#include "quant/blocks.hpp"
#include "quant/codes.hpp"

#include <algorithm>
#include <cstring>

namespace tenon::cpu {
namespace {

using namespace quant;

// A record of 32 or 256 elements in terms of layout.hpp.
struct Record {
  std::uint8_t codes[256];
  std::uint8_t scales[16];  // two levels: i8 scale (q2_k: scale and min) of each group
  std::uint8_t mins[16];
  std::uint16_t d = 0;
  std::uint16_t dmin = 0;
  std::uint16_t group_d[4] = {};  // nvfp4: instead of d, of 16 elements each
};

// Byte i of entry b is bit i of b as the bit 4 of a code.
struct HighBits {
  std::uint64_t at[256];
  constexpr HighBits() : at() {
    for (unsigned b = 0; b < 256; ++b) {
      for (unsigned i = 0; i < 8; ++i) at[b] |= std::uint64_t{(b >> i & 1u) << 4} << (8 * i);
    }
  }
};
constexpr HighBits high_bits;

void unpack_high(const std::uint8_t (&high)[4], std::uint8_t* codes) {
  for (int i = 0; i < 4; ++i) {
    std::uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, 8);
    eight |= high_bits.at[high[i]];
    std::memcpy(codes + 8 * i, &eight, 8);
  }
}

void read(const BlockQ4_0& b, Record& r) {
  r.d = b.d;
  unpack_nibbles<16>(b.nibbles, r.codes);
}
void read(const BlockQ4_1& b, Record& r) {
  r.d = b.d;
  r.dmin = b.m;
  unpack_nibbles<16>(b.nibbles, r.codes);
}
void read(const BlockQ5_0& b, Record& r) {
  r.d = b.d;
  unpack_nibbles<16>(b.nibbles, r.codes);
  unpack_high(b.high, r.codes);
}
void read(const BlockQ5_1& b, Record& r) {
  r.d = b.d;
  r.dmin = b.m;
  unpack_nibbles<16>(b.nibbles, r.codes);
  unpack_high(b.high, r.codes);
}
void read(const BlockQ8_0& b, Record& r) {
  r.d = b.d;
  for (int e = 0; e < 32; ++e) r.codes[e] = static_cast<std::uint8_t>(b.q[e] + 128);
}
void read(const BlockIQ4NL& b, Record& r) {
  r.d = b.d;
  unpack_nibbles<16>(b.nibbles, r.codes);
}
void read(const BlockQ2K& b, Record& r) {
  r.d = b.d;
  r.dmin = b.dmin;
  std::memcpy(r.scales, b.scales, 16);
  unpack_codes(b, r.codes);
}
void read(const BlockQ3K& b, Record& r) {
  r.d = b.d;
  std::int8_t scales[16];
  unpack_scales_q3k(b.scales, scales);
  std::memcpy(r.scales, scales, 16);
  unpack_codes(b, r.codes);
}
template <class Block>
void read_q4k_like(const Block& b, Record& r) {
  r.d = b.d;
  r.dmin = b.dmin;
  std::uint8_t scales[8], mins[8];
  unpack_scales_q4k(b.scales, scales, mins);
  std::memcpy(r.scales, scales, 8);
  std::memcpy(r.mins, mins, 8);
  unpack_codes(b, r.codes);
}
void read(const BlockQ4K& b, Record& r) { read_q4k_like(b, r); }
void read(const BlockQ5K& b, Record& r) { read_q4k_like(b, r); }
void read(const BlockQ6K& b, Record& r) {
  r.d = b.d;
  std::memcpy(r.scales, b.scales, 16);
  unpack_codes(b, r.codes);
}
void read(const BlockIQ4XS& b, Record& r) {
  r.d = b.d;
  std::int8_t scales[8];
  unpack_scales_iq4xs(b, scales);
  std::memcpy(r.scales, scales, 8);
  for (int s = 0; s < 8; ++s) unpack_nibbles<16>(b.nibbles + 16 * s, r.codes + 32 * s);
}

// d q - d, as q2_k.
template <class Block>
void read_ternary(const Block& b, Record& r) {
  r.d = r.dmin = b.d;
  std::fill_n(r.scales, 16, std::uint8_t{0x11});
  unpack_codes(b, r.codes);
}
void read(const BlockTQ1_0& b, Record& r) { read_ternary(b, r); }
void read(const BlockTQ2_0& b, Record& r) { read_ternary(b, r); }
void read(const BlockMXFP4& b, Record& r) {
  r.d = mxfp4_scale(b.exponent);
  unpack_nibbles<16>(b.nibbles, r.codes);
}
void read(const BlockNVFP4& b, Record& r) {
  for (int g = 0; g < 4; ++g) {
    r.group_d[g] = nvfp4_scale(b.scales[g]);
    unpack_nibbles<8>(b.nibbles + 8 * g, r.codes + 16 * g);
  }
}
void read(const BlockQ1_0& b, Record& r) {
  r.d = b.d;
  unpack_codes(b, r.codes);
  for (int e = 0; e < BlockQ1_0::size; ++e) r.codes[e] = static_cast<std::uint8_t>(2 * r.codes[e]);
}
void read(const BlockQ2_0& b, Record& r) {
  r.d = b.d;
  unpack_codes(b, r.codes);
}
// Scales of 16 elements; of 32, where panels have no others.
template <class Block, int group>
void read_levels(const Block& b, Record& r) {
  LevelCodes block;
  unpack(b, block);
  r.d = block.d;
  for (int g = 0; g < 256 / group; ++g) {
    r.scales[g] = static_cast<std::uint8_t>(block.scales[g * group / 16]);
  }
  std::memcpy(r.codes, block.codes, sizeof r.codes);
}
void read(const BlockIQ1S& b, Record& r) { read_levels<BlockIQ1S, 16>(b, r); }
void read(const BlockIQ1M& b, Record& r) { read_levels<BlockIQ1M, 16>(b, r); }
void read(const BlockIQ2XXS& b, Record& r) { read_levels<BlockIQ2XXS, 16>(b, r); }
void read(const BlockIQ2XS& b, Record& r) { read_levels<BlockIQ2XS, 16>(b, r); }
void read(const BlockIQ2S& b, Record& r) { read_levels<BlockIQ2S, 16>(b, r); }
void read(const BlockIQ3XXS& b, Record& r) { read_levels<BlockIQ3XXS, 32>(b, r); }
void read(const BlockIQ3S& b, Record& r) { read_levels<BlockIQ3S, 32>(b, r); }

// Eight vectors of 64 bytes from 32 codes of each of 16 rows.
void transpose(const Record (&rows)[16], int first, std::uint8_t (&vectors)[8][64]) {
  for (int r = 0; r < 16; ++r) {
    for (int j = 0; j < 8; ++j) std::memcpy(vectors[j] + 4 * r, rows[r].codes + first + 4 * j, 4);
  }
}

template <int bits>
void write_plane(const std::uint8_t (&vectors)[8][64], int shift, std::uint8_t* out) {
  constexpr int per_line = 8 / bits;
  constexpr unsigned mask = (1u << bits) - 1u;
  for (int line = 0; line < bits; ++line) {
    for (int b = 0; b < 64; ++b) {
      unsigned byte = 0;
      for (int i = 0; i < per_line; ++i) {
        // Nibbles pair vectors l and l + 4; narrower planes keep neighbours together.
        const int vector = bits == 4 ? line + 4 * i : line * per_line + i;
        byte |= ((static_cast<unsigned>(vectors[vector][b]) >> shift) & mask) << (bits * i);
      }
      out[64 * line + b] = static_cast<std::uint8_t>(byte);
    }
  }
}

template <int low, int high>
void write_codes(const std::uint8_t (&vectors)[8][64], std::uint8_t* out) {
  write_plane<low>(vectors, 0, out);
  if constexpr (high != 0) write_plane<high>(vectors, low, out + 64 * low);
}

void read(const BlockQ8K&, Record&) {}  // no weights

void write_f16(const Record (&rows)[16], std::uint16_t Record::* number, std::uint8_t* out) {
  for (int r = 0; r < 16; ++r) std::memcpy(out + 2 * r, &(rows[r].*number), 2);
}

// The scales of a block of `size` elements that begins at element k of a panel.
void write_scales(const BlockFormat& format, const Record (&rows)[16], std::int64_t k, int size,
                  std::uint8_t* panel) {
  if (!format.two_levels) {
    for (std::int64_t e = k; e < k + size; e += format.group) {
      std::uint8_t* const record = panel + format.record_at(e);
      const std::int64_t place = e % format.span() / format.group;
      if (place == 0) {  // an odd last group has half of them
        std::memset(record, 0, static_cast<std::size_t>(format.scale_bytes()));
      }
      for (int r = 0; r < 16; ++r) {
        const Record& row = rows[r];
        const std::uint16_t& d = format.group == 16 ? row.group_d[(e - k) / 16] : row.d;
        std::memcpy(record + 32 * place + 2 * r, &d, 2);
      }
      if (format.has_min) write_f16(rows, &Record::dmin, record + 32);
    }
    return;
  }
  std::uint8_t* scales = panel + format.record_at(k);
  const std::uint8_t* const end = scales + format.scale_bytes();
  write_f16(rows, &Record::d, scales);
  scales += 32;
  if (format.has_min) {
    write_f16(rows, &Record::dmin, scales);
    scales += 32;
  }
  const bool shared_byte = format.low_bits == 2;
  for (int g = 0; g < 256 / format.group; ++g) {
    for (int r = 0; r < 16; ++r) *scales++ = rows[r].scales[g];
    if (!format.has_min || shared_byte) continue;
    for (int r = 0; r < 16; ++r) *scales++ = rows[r].mins[g];
  }
  std::memset(scales, 0, static_cast<std::size_t>(end - scales));
}

template <class Block>
void pack(const BlockFormat format, const PanelSource& source, std::byte* bytes) {
  auto* panel = reinterpret_cast<std::uint8_t*>(bytes);
  Record rows[16] = {};
  std::uint8_t vectors[8][64];
  // A row that is not there gets the codes of zeros too, so that panels have one well-defined
  // content.
  for (int r = source.count; r < 16; ++r) {
    std::fill_n(rows[r].codes, 256, static_cast<std::uint8_t>(format.codebook ? 0 : format.offset));
  }
  for (std::int64_t k = 0; k < source.inputs; k += Block::size) {
    for (int r = 0; r < source.count; ++r) {
      Block b;
      std::memcpy(&b,
                  source.rows + static_cast<std::size_t>(r) * source.row_bytes +
                      static_cast<std::size_t>(k / Block::size) * sizeof(Block),
                  sizeof b);
      read(b, rows[r]);
    }
    write_scales(format, rows, k, Block::size, panel);
    for (int first = 0; first < Block::size; first += 32) {
      std::uint8_t* const codes = panel + format.codes_at(k + first);
      transpose(rows, first, vectors);
      switch (format.low_bits * 10 + format.high_bits) {
        case 20:
          write_codes<2, 0>(vectors, codes);
          break;
        case 21:
          write_codes<2, 1>(vectors, codes);
          break;
        case 40:
          write_codes<4, 0>(vectors, codes);
          break;
        case 41:
          write_codes<4, 1>(vectors, codes);
          break;
        case 42:
          write_codes<4, 2>(vectors, codes);
          break;
        default:
          std::memcpy(codes, vectors, sizeof vectors);
      }
    }
  }
}

int read_plane(const std::uint8_t* plane, int bits, int vector, int byte) {
  const int per_line = 8 / bits;
  const int line = bits == 4 ? vector % 4 : vector / per_line;
  const int slot = bits == 4 ? vector / 4 : vector % per_line;
  return (plane[64 * line + byte] >> (bits * slot)) & ((1 << bits) - 1);
}

int code_at(DType dtype, const std::uint8_t* group, int vector, int byte) {
  const BlockFormat format = block_format(dtype);
  if (format.low_bits == 8) return group[64 * vector + byte];
  int code = read_plane(group, format.low_bits, vector, byte);
  if (format.high_bits != 0) {
    code |= read_plane(group + 64 * format.low_bits, format.high_bits, vector, byte)
            << format.low_bits;
  }
  return format.codebook ? codebook(dtype).codes[code] : code;
}

std::uint16_t bits_at(const std::uint8_t* bytes) {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return bits;
}
float f16_at(const std::uint8_t* bytes) { return to_float(half{bits_at(bytes)}); }

// w = scale * (code - offset) + min
struct Affine {
  float scale;
  float min;
};

// Of the group that element k belongs to.
Affine affine_at(DType dtype, const std::uint8_t* panel, int lane, std::int64_t k) {
  const BlockFormat format = block_format(dtype);
  const std::uint8_t* record = panel + format.record_at(k);
  if (!format.two_levels) {
    const std::uint8_t* d = record + k % format.span() / format.group * 32 + 2 * lane;
    return {format.wide_scale ? to_float(bfloat16{bits_at(d)}) : f16_at(d),
            format.has_min ? f16_at(record + 32 + 2 * lane) : 0.0f};
  }
  Affine w{f16_at(record + 2 * lane), format.has_min ? f16_at(record + 32 + 2 * lane) : 0.0f};
  if (format.codebook) w.scale *= codebook(dtype).unit;
  const bool shared_byte = format.low_bits == 2 && format.has_min;
  const int stride = format.has_min && !shared_byte ? 32 : 16;
  const std::uint8_t* sub =
      record + (format.has_min ? 64 : 32) + k % 256 / format.group * stride + lane;
  if (shared_byte)
    return {w.scale * static_cast<float>(sub[0] & 15), -w.min * static_cast<float>(sub[0] >> 4)};
  w.scale *= static_cast<float>(static_cast<std::int8_t>(sub[0]));
  if (format.has_min) w.min *= -static_cast<float>(sub[16]);
  return w;
}

}  // namespace

void pack_block_panel(DType dtype, const PanelSource& source, std::byte* panel) noexcept {
  const BlockFormat format = block_format(dtype);
  switch (dtype) {
#define TENON_BLOCK(type, Block) \
  case DType::type:              \
    return pack<Block>(format, source, panel);
#include "quant/block_types.def"
#undef TENON_BLOCK
    default:
      return;
  }
}

void unpack_block_row(DType dtype, const std::byte* panel, int lane, std::int64_t inputs,
                      float* out) noexcept {
  const BlockFormat format = block_format(dtype);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(panel);
  for (std::int64_t k = 0; k < inputs; k += format.group) {
    const Affine w = affine_at(dtype, bytes, lane, k);
    const std::uint8_t* group = bytes + format.codes_at(k);
    for (int i = 0; i < format.group; ++i) {
      const int at = static_cast<int>(k % 32) + i;
      const int code = code_at(dtype, group, at / 4, 4 * lane + at % 4);
      const float value = static_cast<float>(code - format.offset) * w.scale;
      out[k + i] = format.has_min ? value + w.min : value;
    }
  }
}

}  // namespace tenon::cpu
