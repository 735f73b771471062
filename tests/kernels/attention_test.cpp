#include "backends/cpu/attention/attention.hpp"

#include "backends/cpu/thread_pool.hpp"
#include "kernels/support.hpp"
#include "support/rounds.hpp"

#include <tenon/quant.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

using namespace tenon;
using namespace tenon::test;
using cpu::AttentionArgs;

namespace {

struct Case {
  AttentionArgs args;
  std::vector<float> q, k, v, mask, sinks;
  std::vector<std::byte> narrow_k, narrow_v;  // what the kernel gets, unless they are f32
  std::vector<std::int32_t> pages;            // if any, it gets these instead
  std::vector<std::byte> paged_k, paged_v;

  // Strides leave gaps, which must neither be read as data nor be written.
  Case(Random& random, std::int64_t queries, std::int64_t keys, std::int64_t heads,
       std::int64_t kv_heads, std::int64_t dim, std::int64_t value_dim, DType kv) {
    args.queries = queries;
    args.keys = keys;
    args.heads = heads;
    args.kv_heads = kv_heads;
    args.head_dim = dim;
    args.value_dim = value_dim;
    args.q_head = dim + 1;
    args.q_row = heads * args.q_head + 2;
    const std::int64_t block = block_size(kv);
    args.k_row = dim / block + 3;
    args.k_head = (keys + 1) * args.k_row;
    args.v_row = value_dim / block + 1;
    args.v_head = (keys + 2) * args.v_row;
    args.out_head = value_dim + 2;
    args.out_row = heads * args.out_head + 1;
    args.kv_dtype = kv;
    args.scale = 1.0f / std::sqrt(static_cast<float>(dim));
    q = random.normals(queries * args.q_row, 2.0f);
    k = random.normals(kv_heads * args.k_head * block, 2.0f);
    v = random.normals(kv_heads * args.v_head * block);
    if (kv != DType::f32) {
      narrow_k = round(kv, k);
      narrow_v = round(kv, v);
    }
    args.causal = false;
  }

  static std::vector<std::byte> round(DType type, std::vector<float>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(count / block_size(type) * block_bytes(type)));
    quantize(type, values.data(), bytes.data(), count);
    dequantize(type, bytes.data(), values.data(), count);
    return bytes;
  }
  // Element d of row j of keys or values, of kv_head g.
  double element(const std::vector<float>& of, std::int64_t head, std::int64_t row, std::int64_t g,
                 std::int64_t j, std::int64_t d) const {
    const std::int64_t at = (g * head + j * row) * block_size(args.kv_dtype) + d;
    return static_cast<double>(of[static_cast<std::size_t>(at)]);
  }
  double key(std::int64_t g, std::int64_t j, std::int64_t d) const {
    return element(k, args.k_head, args.k_row, g, j, d);
  }
  double value(std::int64_t g, std::int64_t j, std::int64_t d) const {
    return element(v, args.v_head, args.v_row, g, j, d);
  }

  /// One for all heads or for each, one for all queries or for each.
  void add_mask(Random& random) {
    const bool per_head = random.below(2) == 0, per_query = random.below(2) == 0;
    const std::int64_t rows = per_query ? args.queries : 1, row = args.keys + 1;
    args.mask_row = per_query ? row : 0;
    args.mask_head = per_head ? rows * row : 0;
    mask = random.normals((per_head ? args.heads : 1) * rows * row);
    for (float& m : mask) m = random.below(5) == 0 ? -infinity : m;
  }

  const std::byte* keys() const {
    return args.kv_dtype == DType::f32 ? reinterpret_cast<const std::byte*>(k.data())
                                       : narrow_k.data();
  }
  const std::byte* values() const {
    return args.kv_dtype == DType::f32 ? reinterpret_cast<const std::byte*>(v.data())
                                       : narrow_v.data();
  }

  /// Keys and values in pages of a pool, out of order. Bytes of ones, which are NaNs, and entries of
  /// no page where no query looks.
  void move_to_pages(Random& random, std::int64_t page_size) {
    const std::int64_t past = args.past, last = past + args.queries - 1;
    std::int64_t begin = args.window == 0 ? 0 : std::max<std::int64_t>(0, past - args.window + 1);
    std::int64_t end = args.causal ? std::min(args.keys, last + 1) : args.keys;
    if (args.window != 0) end = std::min(end, last + args.window);
    const std::int64_t count = (args.keys + page_size - 1) / page_size + 1, first = random.below(3);
    pages.assign(static_cast<std::size_t>(count), random.below(2) == 0 ? -1 : 1 << 30);
    for (std::int64_t i = begin / page_size; i * page_size < end; ++i) {
      pages[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(first + 2 * (count - 1 - i));
    }
    args.page_size = page_size;
    args.k_page = args.kv_heads * page_size * args.k_row;
    args.v_page = args.kv_heads * page_size * args.v_row;
    const auto pool = [&](const std::byte* from, std::int64_t head, std::int64_t row) {
      const std::int64_t bytes = row * block_bytes(args.kv_dtype),
                         page_rows = page_size * args.kv_heads;
      std::vector<std::byte> to(static_cast<std::size_t>((first + 2 * count) * page_rows * bytes),
                                std::byte{0xFF});
      for (std::int64_t g = 0; g < args.kv_heads; ++g) {
        for (std::int64_t j = begin; j < end; ++j) {
          const std::int64_t page = pages[static_cast<std::size_t>(j / page_size)];
          const std::int64_t at = page * page_rows + g * page_size + j % page_size;
          std::copy_n(from + (g * head + j * row) * block_bytes(args.kv_dtype), bytes,
                      to.begin() + at * bytes);
        }
      }
      return to;
    };
    paged_k = pool(keys(), args.k_head, args.k_row);
    paged_v = pool(values(), args.v_head, args.v_row);
    args.k_head = page_size * args.k_row;
    args.v_head = page_size * args.v_row;
  }

  std::vector<float> run(cpu::Isa isa, int threads = 1, bool fast = false) {
    AttentionArgs a = args;
    a.isa = isa;
    a.fast = fast;
    a.q = q.data();
    a.k = pages.empty() ? keys() : paged_k.data();
    a.v = pages.empty() ? values() : paged_v.data();
    a.pages = pages.empty() ? nullptr : pages.data();
    a.mask = mask.empty() ? nullptr : mask.data();
    a.sinks = sinks.empty() ? nullptr : sinks.data();
    std::vector<float> out(static_cast<std::size_t>(a.queries * a.out_row), 77.0f);
    a.out = out.data();
    const std::size_t bytes = cpu::attention_workspace_bytes(a);
    cpu::AlignedBuffer workspace(bytes);
    std::fill_n(workspace.data(), bytes, std::byte{0});
    a.workspace = workspace.data();
    for (int round = 0; round < 2; ++round) {  // the workspace stays usable
      for (int t = threads; t-- > 0;) cpu::attention(a, t, threads);
    }
    return out;
  }

  bool sees(std::int64_t i, std::int64_t j) const {
    const std::int64_t p = args.past + i;
    if (args.causal && j > p) return false;
    return args.window == 0 || (j > p - args.window && j < p + args.window);
  }

  // How far rounding q, k, weights and v to bf16, each by 2^-9 of itself at most, moves an output.
  double bf16_bound() const {
    double score = 0, largest = 0;
    for (std::int64_t i = 0; i < args.queries; ++i) {
      for (std::int64_t h = 0; h < args.heads; ++h) {
        const std::int64_t g = h / (args.heads / args.kv_heads);
        for (std::int64_t j = 0; j < args.keys; ++j) {
          double s = 0;
          for (std::int64_t d = 0; d < args.head_dim; ++d) {
            s += std::fabs(static_cast<double>(
                     q[static_cast<std::size_t>(i * args.q_row + h * args.q_head + d)])) *
                 std::fabs(key(g, j, d));
          }
          score = std::max(score, s * static_cast<double>(args.scale));
        }
      }
    }
    for (const float x : v) largest = std::max(largest, std::fabs(static_cast<double>(x)));
    const double two = std::exp2(-8.0);
    return largest * (std::exp(2 * two * score) - 1 + two);
  }

  // By definition, in f64.
  std::vector<double> reference() const {
    std::vector<double> out(static_cast<std::size_t>(args.queries * args.out_row), 77.0);
    std::vector<double> scores(static_cast<std::size_t>(args.keys));
    for (std::int64_t i = 0; i < args.queries; ++i) {
      for (std::int64_t h = 0; h < args.heads; ++h) {
        const std::int64_t g = h / (args.heads / args.kv_heads);
        double max = -static_cast<double>(infinity);
        for (std::int64_t j = 0; j < args.keys; ++j) {
          double s = 0.0;
          for (std::int64_t d = 0; d < args.head_dim; ++d) {
            s += static_cast<double>(
                     q[static_cast<std::size_t>(i * args.q_row + h * args.q_head + d)]) *
                 key(g, j, d);
          }
          s *= static_cast<double>(args.scale);
          if (args.soft_cap > 0.0f) {
            s = static_cast<double>(args.soft_cap) *
                std::tanh(s / static_cast<double>(args.soft_cap));
          }
          if (!mask.empty()) {
            s += static_cast<double>(
                mask[static_cast<std::size_t>(h * args.mask_head + i * args.mask_row + j)]);
          }
          if (!sees(i, j)) s = -static_cast<double>(infinity);
          scores[static_cast<std::size_t>(j)] = s;
          max = std::max(max, s);
        }
        double sum = 0.0;
        for (double& s : scores) {
          s = std::isinf(max) ? 0.0 : std::exp(s - max);
          sum += s;
        }
        if (!sinks.empty() && sum != 0.0) {
          sum += std::exp(static_cast<double>(sinks[static_cast<std::size_t>(h)]) - max);
        }
        for (std::int64_t d = 0; d < args.value_dim; ++d) {
          double y = 0.0;
          for (std::int64_t j = 0; j < args.keys; ++j) {
            y += scores[static_cast<std::size_t>(j)] * value(g, j, d);
          }
          out[static_cast<std::size_t>(i * args.out_row + h * args.out_head + d)] =
              sum == 0.0 ? 0.0 : y / sum;
        }
      }
    }
    return out;
  }
};

DType random_key_type(Random& random) {
  constexpr DType types[] = {DType::f32, DType::f16, DType::q8_0};
  return types[random.below(3)];
}

/// About `wanted`: whole blocks.
std::int64_t columns(DType type, std::int64_t wanted) {
  return (wanted + block_size(type) - 1) / block_size(type) * block_size(type);
}

double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0.0 : 1e9;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    worst = std::isnan(difference) ? 1e9 : std::max(worst, difference);
  }
  return worst;
}

double mean_square_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  }
  return sum / static_cast<double>(a.size());
}

}  // namespace

TEST_CASE("attention: a worked example") {
  // Two keys, the second scoring ln 3 more: weights 1/4 and 3/4.
  const float q[] = {1, 0}, k[] = {0, 5, 1.0986123f, 5}, v[] = {4, 0, 0, 8};
  for (const cpu::Isa isa : supported_isas()) {
    float out[2] = {};
    alignas(64) std::byte workspace[4096] = {};
    AttentionArgs a;
    a.queries = 1;
    a.keys = 2;
    a.heads = a.kv_heads = 1;
    a.head_dim = 2;
    a.q = q;
    a.k = k;
    a.v = v;
    a.k_row = a.v_row = 2;
    a.kv_dtype = DType::f32;
    a.out = out;
    a.past = 1;
    a.workspace = workspace;
    a.isa = isa;
    REQUIRE(cpu::attention_workspace_bytes(a) <= sizeof workspace);
    cpu::attention(a, 0, 1);
    CAPTURE(name(isa));
    CHECK(out[0] == Approx(1.0));
    CHECK(out[1] == Approx(6.0));
  }
}

TEST_CASE("attention: every variant against f64", "[one_thread]") {
  Random random;
  CAPTURE(random.seed());
  for (int round = 0; round < testing::rounds(120); ++round) {
    const std::int64_t kv_heads = 1 + random.below(3);
    const std::int64_t group = 1 + random.below(5) * (1 + random.below(2) * 4);
    // Few queries use the split kernel, many the tiles.
    const std::int64_t queries = random.below(2) == 0 ? 1 + random.below(6) : 7 + random.below(60);
    const std::int64_t past = random.below(3) == 0 ? 0 : random.below(600);
    const std::int64_t keys = past + queries;
    const DType kv = random_key_type(random);
    const std::int64_t dim = round % 10 == 0 ? 256 : columns(kv, 1 + random.below(100));
    const std::int64_t value_dim = random.below(2) == 0 ? dim : columns(kv, 1 + random.below(140));
    Case c(random, queries, keys, kv_heads * group, kv_heads, dim, value_dim, kv);
    c.args.past = past;
    c.args.causal = random.below(4) != 0;
    if (random.below(3) == 0) c.args.window = 1 + random.below(300);
    if (random.below(3) == 0) c.args.soft_cap = 1.0f + static_cast<float>(random.below(30));
    if (random.below(3) == 0) c.add_mask(random);
    if (random.below(3) == 0) c.sinks = random.normals(c.args.heads, 3.0f);
    const std::vector<double> expected = c.reference();
    for (const cpu::Isa isa : supported_isas()) {
      CAPTURE(name(isa), queries, keys, kv_heads, group, dim, value_dim, name(c.args.kv_dtype));
      CAPTURE(c.args.causal, c.args.window, c.args.soft_cap, c.mask.size(), c.args.mask_row);
      const std::vector<float> out = c.run(isa);
      CHECK(largest_difference(out, expected) < 2e-5);
      CHECK(c.run(isa, 3) == out);
    }
  }
}

TEST_CASE("attention: keys in pages give the bits of keys in a row") {
  Random random;
  CAPTURE(random.seed());
  for (int round = 0; round < testing::rounds(90); ++round) {
    const std::int64_t kv_heads = 1 + random.below(3), group = 1 + random.below(5);
    const std::int64_t queries = random.below(2) == 0 ? 1 + random.below(6) : 7 + random.below(60);
    const std::int64_t past = random.below(3) == 0 ? 0 : random.below(400);
    const DType kv = random_key_type(random);
    const std::int64_t dim = columns(kv, 1 + random.below(150));
    const std::int64_t value_dim = random.below(2) == 0 ? dim : columns(kv, 1 + random.below(140));
    Case c(random, queries, past + queries, kv_heads * group, kv_heads, dim, value_dim, kv);
    c.args.past = past;
    c.args.causal = random.below(4) != 0;
    if (random.below(3) == 0) c.args.window = 1 + random.below(200);
    if (random.below(3) == 0) c.add_mask(random);
    Case paged = c;
    constexpr int sizes[] = {1, 3, 16, 37, 64, 128};
    paged.move_to_pages(random, sizes[random.below(6)]);
    for (const cpu::Isa isa : supported_isas()) {
      CAPTURE(name(isa), queries, past, kv_heads, group, dim, value_dim, name(kv));
      CAPTURE(c.args.causal, c.args.window, c.mask.size(), paged.args.page_size);
      CHECK(paged.run(isa, 2) == c.run(isa));
      CHECK(paged.run(isa, 2, true) == c.run(isa, 1, true));
    }
  }
}

TEST_CASE("attention: bf16 tiles stay near f64 in every variant", "[amx]") {
  if (!cpu::supports(cpu::Isa::amx)) {
    WARN("SKIPPED: this machine has no AMX");
    return;
  }
  Random random;
  CAPTURE(random.seed());
  for (int round = 0; round < 80; ++round) {
    const std::int64_t kv_heads = 1 + random.below(3), group = 1 + random.below(6);
    const std::int64_t queries = 7 + random.below(150);
    const std::int64_t past = random.below(3) == 0 ? 0 : random.below(300);
    const DType kv = random_key_type(random);
    const std::int64_t dim = columns(kv, round % 10 == 0 ? 300 : 1 + random.below(140));
    const std::int64_t value_dim = random.below(2) == 0 ? dim : columns(kv, 1 + random.below(140));
    Case c(random, queries, past + queries, kv_heads * group, kv_heads, dim, value_dim, kv);
    c.args.past = past;
    c.args.causal = random.below(4) != 0;
    if (random.below(3) == 0) c.args.window = 1 + random.below(100);
    if (random.below(3) == 0) c.args.soft_cap = 1.0f + static_cast<float>(random.below(30));
    if (random.below(3) == 0) c.add_mask(random);
    if (random.below(3) == 0) c.sinks = random.normals(c.args.heads, 3.0f);
    CAPTURE(queries, past, kv_heads, group, dim, value_dim, name(c.args.kv_dtype));
    CAPTURE(c.args.causal, c.args.window, c.args.soft_cap, c.mask.size(), c.args.mask_row);
    const std::vector<float> out = c.run(cpu::Isa::amx, 1, true);
    const std::vector<double> expected = c.reference();
    CHECK(largest_difference(out, expected) < c.bf16_bound());
    // Scores have standard deviation 4; sums of few terms sometimes exceed it by far.
    const double typical = dim < 16 ? 0.02 : 0.006;
    CHECK(mean_square_difference(out, expected) < typical * typical);
    CHECK(c.run(cpu::Isa::amx, 5, true) == out);
  }
}

TEST_CASE("attention: bf16 tiles are exact where bf16 is", "[amx]") {
  if (!cpu::supports(cpu::Isa::amx)) {
    WARN("SKIPPED: this machine has no AMX");
    return;
  }
  Random random;
  CAPTURE(random.seed());
  // Small integers; weights of one or a few equal keys are powers of two.
  Case c(random, 40, 150, 4, 2, 48, 40, DType::f16);
  c.args.scale = 64.0f;
  const auto small = [&](std::vector<float>& values) {
    for (float& x : values) x = static_cast<float>(random.below(5) - 2);
  };
  small(c.q);
  small(c.k);
  small(c.v);
  c.narrow_k = Case::round(DType::f16, c.k);
  c.narrow_v = Case::round(DType::f16, c.v);
  c.args.causal = true;
  c.args.past = 110;
  CHECK(largest_difference(c.run(cpu::Isa::amx, 1, true), c.reference()) < 1e-6);
}

TEST_CASE("attention: keys far above the rest do not overflow") {
  Random random;
  CAPTURE(random.seed());
  for (const std::int64_t queries : {1, 20}) {
    Case c(random, queries, 300, 2, 1, 16, 16, DType::f32);
    for (float& x : c.q) x *= 200.0f;
    const std::vector<double> expected = c.reference();
    for (const cpu::Isa isa : supported_isas()) {
      CAPTURE(name(isa), queries);
      CHECK(largest_difference(c.run(isa), expected) < 2e-3);
    }
  }
}

TEST_CASE("attention: a query that sees nothing gives zeros") {
  Random random;
  CAPTURE(random.seed());
  for (const std::int64_t queries : {2, 40}) {
    Case c(random, queries, 70, 3, 1, 8, 8, DType::f16);
    c.args.mask_row = 70;
    c.mask.assign(static_cast<std::size_t>(queries * 70), 0.0f);
    std::fill_n(c.mask.begin() + 70, 70, -infinity);                      // query 1
    std::fill_n(c.mask.begin(), 70, -std::numeric_limits<float>::max());  // query 0: all alike
    const auto check = [&](cpu::Isa isa, bool fast, double margin) {
      CAPTURE(name(isa), queries, fast);
      const std::vector<float> out = c.run(isa, 1, fast);
      double mean = 0.0;
      for (std::size_t j = 0; j < 70; ++j) {
        mean += static_cast<double>(c.v[j * static_cast<std::size_t>(c.args.v_row)]) / 70.0;
      }
      CHECK(static_cast<double>(out[0]) == Approx(mean).margin(margin));
      for (std::int64_t d = 0; d < 8; ++d) {
        CHECK(out[static_cast<std::size_t>(c.args.out_row + d)] == 0.0f);
      }
    };
    for (const cpu::Isa isa : supported_isas()) {
      check(isa, false, 1e-4);
      check(isa, true, 4e-3);
    }
  }
  // No keys at all.
  Case none(random, 3, 0, 2, 2, 4, 4, DType::f32);
  for (const cpu::Isa isa : supported_isas()) {
    CHECK(none.run(isa)[0] == 0.0f);
    CHECK(Case(random, 0, 4, 2, 2, 4, 4, DType::f32).run(isa).empty());
  }
}

TEST_CASE("attention: a NaN key spoils the queries that see it") {
  Random random;
  CAPTURE(random.seed());
  for (const std::int64_t queries : {4, 30}) {
    Case c(random, queries, queries, 1, 1, 8, 8, DType::f32);
    c.args.causal = true;
    c.k[static_cast<std::size_t>(2 * c.args.k_row)] = std::nanf("");
    for (const cpu::Isa isa : supported_isas()) {
      CAPTURE(name(isa), queries);
      const std::vector<float> out = c.run(isa);
      CHECK(std::isfinite(out[static_cast<std::size_t>(c.args.out_row)]));
      CHECK(std::isnan(out[static_cast<std::size_t>(2 * c.args.out_row)]));
      CHECK(std::isnan(out[static_cast<std::size_t>(3 * c.args.out_row)]));
    }
  }
}

TEST_CASE("attention: parts of one query finish on different threads") {
  Random random;
  CAPTURE(random.seed());
  Case c(random, 2, 3000, 6, 2, 64, 64, DType::f16);
  c.args.past = 2998;
  c.args.causal = true;
  c.args.q = c.q.data();
  c.args.k = c.narrow_k.data();
  c.args.v = c.narrow_v.data();
  const std::vector<float> expected = c.run(cpu::active_isa());
  cpu::AlignedBuffer workspace(cpu::attention_workspace_bytes(c.args));
  std::fill_n(workspace.data(), workspace.size_bytes(), std::byte{0});
  c.args.workspace = workspace.data();
  cpu::ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> out(expected.size(), 77.0f);
    c.args.out = out.data();
    pool.run([&](cpu::Worker& w) { cpu::attention(c.args, w.thread, w.threads); });
    REQUIRE(out == expected);
  }
}
