#pragma once

// The factorisations of factor_kernels.hpp: matrices are halved until few columns are left, so that
// products of large matrices do nearly all of the work (Toledo 1997; Gustavson 1997). Included after a
// header of simd/, by the sources of one instruction set each.
#include "product_body.hpp"

namespace tenon::cpu {
namespace {

constexpr std::int64_t few = 8;           ///< columns that are no longer halved
constexpr std::int64_t reflections = 48;  ///< at most, that are applied at once

/// Of k: more of them multiply more zeros of v and of the identity matrix, fewer read and write what is
/// left of a more often.
TENON_INLINE std::int64_t reflections_at_once(std::int64_t k) {
  return k <= 256 ? 32 : reflections;
}

/// About a half, in whole tiles of rows.
TENON_INLINE std::int64_t half_of(std::int64_t n) { return rounded_up(n / 2, few); }

/// row -= factor other
TENON_INLINE void subtract_row(double factor, const double* other, double* row,
                               std::int64_t count) {
  const FactorLanes by = every_lane(-factor);
  std::int64_t j = 0;
  for (; j + factor_lanes <= count; j += factor_lanes) {
    store_lanes(row + j, multiply_add(by, load_lanes(other + j), load_lanes(row + j)));
  }
  for (; j < count; ++j) row[j] -= factor * other[j];
}

/// Of at most `few` rows; rows are done in `order`, from the last one up where !lower.
void solve_few(std::int64_t n, std::int64_t k, Spread t, bool lower, bool unit, MatrixRows b) {
  for (std::int64_t done = 0; done < n; ++done) {
    const std::int64_t i = lower ? done : n - 1 - done;
    double* const row = b.at + i * b.step;
    for (std::int64_t before = 0; before < done; ++before) {
      const std::int64_t p = lower ? before : n - 1 - before;
      subtract_row(*t.from(i, p).at, b.at + p * b.step, row, k);
    }
    if (unit) continue;
    const double divisor = *t.from(i, i).at;
    for (std::int64_t j = 0; j < k; ++j) row[j] /= divisor;
  }
}

void solve_triangular(std::int64_t n, std::int64_t k, Spread t, bool lower, bool unit, MatrixRows b,
                      const FactorRoom& room) {
  if (n <= few) return solve_few(n, k, t, lower, unit, b);
  if (is_due(room.stop)) return;
  const std::int64_t n1 = half_of(n), n2 = n - n1;
  if (lower) {
    solve_triangular(n1, k, t, lower, unit, b, room);
    add_product(n2, k, n1, -1, t.from(n1, 0), spread(b), part(b, n1, 0), false, room);
    solve_triangular(n2, k, t.from(n1, n1), lower, unit, part(b, n1, 0), room);
  } else {
    solve_triangular(n2, k, t.from(n1, n1), lower, unit, part(b, n1, 0), room);
    add_product(n1, k, n2, -1, t.from(0, n1), spread(part(b, n1, 0)), b, false, room);
    solve_triangular(n1, k, t, lower, unit, b, room);
  }
}

bool factor_definite(std::int64_t n, MatrixRows a, const FactorRoom& room) {
  if (n > few) {
    const std::int64_t n1 = half_of(n), n2 = n - n1;
    if (!factor_definite(n1, a, room)) return false;
    const MatrixRows right = part(a, 0, n1), rest = part(a, n1, n1);
    solve_triangular(n1, n2, transposed(a), true, false, right, room);
    add_product(n2, n2, n1, -1, transposed(right), spread(right), rest, true, room);
    return factor_definite(n2, rest, room);
  }
  for (std::int64_t i = 0; i < n; ++i) {
    double* const row = a.at + i * a.step;
    if (!(row[i] > 0 && row[i] <= __DBL_MAX__)) return false;
    row[i] = __builtin_sqrt(row[i]);
    for (std::int64_t j = i + 1; j < n; ++j) row[j] /= row[i];
    for (std::int64_t j = i + 1; j < n; ++j) {
      for (std::int64_t c = j; c < n; ++c) a.at[j * a.step + c] -= row[j] * row[c];
    }
  }
  return true;
}

TENON_INLINE void exchange_rows(double* a, double* b, std::int64_t count) {
  for (std::int64_t j = 0; j < count; ++j) {
    const double x = a[j];
    a[j] = b[j];
    b[j] = x;
  }
}

/// Eliminates at most `few` columns of m rows in a copy that is `few` wide, since rows a power of two
/// apart would evict each other. exchanges[i]: the row that row i changed places with.
void eliminate_few(std::int64_t m, std::int64_t n, MatrixRows a, std::int64_t* exchanges,
                   double* copy) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < few; ++j) copy[i * few + j] = j < n ? a.at[i * a.step + j] : 0;
  }
  for (std::int64_t j = 0; j < least(m, n); ++j) {
    std::int64_t pivot = j;
    double largest = __builtin_fabs(copy[j * few + j]);
    for (std::int64_t i = j + 1; i < m; ++i) {
      const double value = __builtin_fabs(copy[i * few + j]);
      if (value > largest) {
        largest = value;
        pivot = i;
      }
    }
    exchanges[j] = pivot;
    if (pivot != j) exchange_rows(copy + j * few, copy + pivot * few, few);
    const double divisor = copy[j * few + j];
    if (divisor == 0) continue;
    double top[few];
    for (std::int64_t c = 0; c < few; ++c) top[c] = c > j ? copy[j * few + c] : 0;
    for (std::int64_t i = j + 1; i < m; ++i) {
      double* const row = copy + i * few;
      const double factor = row[j] / divisor;
      subtract_row(factor, top, row, few);
      row[j] = factor;
    }
  }
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) a.at[i * a.step + j] = copy[i * few + j];
  }
}

void eliminate(std::int64_t m, std::int64_t n, MatrixRows a, std::int64_t* exchanges,
               const FactorRoom& room) {
  if (is_due(room.stop)) {
    for (std::int64_t i = 0; i < n; ++i) exchanges[i] = i;
    return;
  }
  if (n <= few) return eliminate_few(m, n, a, exchanges, room.numbers);
  const std::int64_t n1 = half_of(n), n2 = n - n1;
  eliminate(m, n1, a, exchanges, room);
  const MatrixRows right = part(a, 0, n1), rest = part(a, n1, n1);
  for (std::int64_t i = 0; i < n1; ++i) {
    if (exchanges[i] == i) continue;
    exchange_rows(right.at + i * a.step, right.at + exchanges[i] * a.step, n2);
  }
  solve_triangular(n1, n2, spread(a), true, true, right, room);
  add_product(m - n1, n2, n1, -1, spread(part(a, n1, 0)), spread(right), rest, false, room);
  eliminate(m - n1, n2, rest, exchanges + n1, room);
  for (std::int64_t i = n1; i < n; ++i) {
    exchanges[i] += n1;
    if (exchanges[i] == i) continue;
    exchange_rows(a.at + i * a.step, a.at + exchanges[i] * a.step, n1);
  }
}

/// Reflections 1 - tau v v^T, v_j = 1, that make at most `few` columns upper triangular, with v below
/// the diagonal; in a copy as above.
void reflect_few(std::int64_t m, std::int64_t n, MatrixRows a, double* taus, double* copy) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < few; ++j) copy[i * few + j] = j < n ? a.at[i * a.step + j] : 0;
  }
  for (std::int64_t j = 0; j < n; ++j) {
    double* const top = copy + j * few;
    taus[j] = 0;
    // Sums of x_ij x_ic below the diagonal: for c = j the square of the column's norm.
    double sums[few] = {};
    for (std::int64_t i = j + 1; i < m; ++i) {
      subtract_row(-copy[i * few + j], copy + i * few, sums, few);
    }
    if (!(sums[j] > __DBL_MIN__) && sums[j] == sums[j]) {
      for (std::int64_t i = j + 1; i < m; ++i) copy[i * few + j] = 0;
      continue;
    }
    const double norm = __builtin_sqrt(top[j] * top[j] + sums[j]);
    const double beta = top[j] >= 0 ? -norm : norm;
    const double scale = 1 / (top[j] - beta);
    const double tau = (beta - top[j]) / beta;
    double factors[few] = {};  // of v, in what is subtracted
    for (std::int64_t c = j + 1; c < few; ++c) {
      factors[c] = tau * (top[c] + scale * sums[c]);
      top[c] -= factors[c];
    }
    for (std::int64_t i = j + 1; i < m; ++i) {
      double* const row = copy + i * few;
      const double v = row[j] * scale;
      subtract_row(v, factors, row, few);
      row[j] = v;
    }
    top[j] = beta;
    taus[j] = tau;
  }
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) a.at[i * a.step + j] = copy[i * few + j];
  }
}

/// 1 - v t v^T is the product of n reflections (Schreiber and Van Loan 1989).
struct Reflector {
  MatrixRows v;  ///< m rows, n columns: with ones and zeros
  MatrixRows t;  ///< upper triangular
};

/// What reflect_few left below the diagonal, of m rows and n columns.
void copy_reflections(std::int64_t m, std::int64_t n, MatrixRows a, MatrixRows v) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      v.at[i * v.step + j] = i > j ? a.at[i * a.step + j] : i == j ? 1 : 0;
    }
  }
}

/// `gram`: n n numbers.
void make_reflector(std::int64_t m, std::int64_t n, MatrixRows a, const double* taus, Reflector to,
                    double* gram, const FactorRoom& room) {
  copy_reflections(m, n, a, to.v);
  for (std::int64_t i = 0; i < n * n; ++i) gram[i] = 0;
  add_product(n, n, m, 1, transposed(to.v), spread(to.v), {gram, n}, true, room);
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::int64_t p = i; p < j; ++p) sum += to.t.at[i * to.t.step + p] * gram[p * n + j];
      to.t.at[i * to.t.step + j] = i < j ? -taus[j] * sum : i == j ? taus[j] : 0;
    }
  }
}

/// The numbers behind those of the product that reflections need for matrices of `size` rows or
/// columns.
struct ReflectionRoom {
  Reflector block;  ///< with t of all blocks, one below the other
  Reflector narrow;
  MatrixRows products[2];
  double *gram, *taus, *copy;
  FactorRoom product;

  static std::int64_t numbers(std::int64_t size, std::int64_t columns) {
    return size * (reflections + 2 * few) + 2 * reflections * size +
           (rounded_up(columns, reflections) + reflections) * reflections + few * few + columns;
  }
  ReflectionRoom(std::int64_t size, std::int64_t columns, const FactorRoom& room) {
    product = room;
    const auto take = [this](std::int64_t count) {
      double* const at = product.numbers;
      product.numbers += count;
      return at;
    };
    block = {{take(size * reflections), reflections},
             {take(rounded_up(columns, reflections) * reflections), reflections}};
    narrow = {{take(size * few), few}, {take(few * few), few}};
    copy = take(size * few);
    for (MatrixRows& one : products) one = {take(reflections * size), size};
    gram = take(reflections * reflections);
    taus = take(columns);
  }
};

/// c -= v t^T v^T c: the reflections, transposed, of m rows, on n columns.
void reflect(std::int64_t m, std::int64_t n, std::int64_t count, const Reflector& by, MatrixRows c,
             const ReflectionRoom& room) {
  const MatrixRows w{room.products[0].at, n}, tw{room.products[1].at, n};
  for (std::int64_t i = 0; i < count * n; ++i) w.at[i] = tw.at[i] = 0;
  add_product(count, n, m, 1, transposed(by.v), spread(c), w, false, room.product);
  add_product(count, n, count, 1, transposed(by.t), spread(w), tw, false, room.product);
  add_product(m, n, count, -1, spread(by.v), spread(tw), c, false, room.product);
}

void reflect_columns(std::int64_t m, std::int64_t n, MatrixRows a, MatrixRows q_transposed,
                     const ReflectionRoom& room) {
  const std::int64_t k = least(m, n), at_once = reflections_at_once(k);
  for (std::int64_t b = 0; b < k; b += at_once) {
    if (is_due(room.product.stop)) return;
    const std::int64_t width = least(at_once, k - b);
    for (std::int64_t j = b; j < b + width; j += few) {
      const std::int64_t some = least(few, b + width - j), left = b + width - j - some;
      reflect_few(m - j, some, part(a, j, j), room.taus + j, room.copy);
      if (left == 0) continue;
      make_reflector(m - j, some, part(a, j, j), room.taus + j, room.narrow, room.gram,
                     room.product);
      reflect(m - j, left, some, room.narrow, part(a, j, j + some), room);
    }
    const Reflector block{room.block.v, part(room.block.t, b, 0)};
    make_reflector(m - b, width, part(a, b, b), room.taus + b, block, room.gram, room.product);
    if (b + width < n) {
      reflect(m - b, n - b - width, width, block, part(a, b, b + width), room);
    }
  }
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t j = 0; j < m; ++j) q_transposed.at[i * q_transposed.step + j] = i == j;
  }
  // The last reflections first, so that what is still the identity matrix is left out.
  for (std::int64_t b = (k - 1) / at_once * at_once; b >= 0; b -= at_once) {
    const std::int64_t width = least(at_once, k - b), rows = k - b, columns = m - b;
    if (b + width < k) copy_reflections(columns, width, part(a, b, b), room.block.v);
    const MatrixRows q = part(q_transposed, b, b);
    const MatrixRows w{room.products[0].at, width}, wt{room.products[1].at, width};
    for (std::int64_t i = 0; i < rows * width; ++i) w.at[i] = wt.at[i] = 0;
    add_product(rows, width, columns, 1, spread(q), spread(room.block.v), w, false, room.product);
    add_product(rows, width, width, 1, spread(w), transposed(part(room.block.t, b, 0)), wt, false,
                room.product);
    add_product(rows, columns, width, -1, spread(wt), transposed(room.block.v), q, false,
                room.product);
  }
}

std::int64_t factor_room(std::int64_t m, std::int64_t n) noexcept {
  const std::int64_t size = most(most(m, n), reflections);
  return most(product_room(size), few * size) + ReflectionRoom::numbers(size, n);
}
bool run_cholesky(std::int64_t n, MatrixRows a, const FactorRoom& room) noexcept {
  return factor_definite(n, a, room);
}
int run_lu(std::int64_t n, MatrixRows a, std::int64_t* rows, const FactorRoom& room) noexcept {
  auto* const exchanges = reinterpret_cast<std::int64_t*>(room.numbers);
  eliminate(n, n, a, exchanges, room.from(n));
  int sign = 1;
  for (std::int64_t i = 0; i < n; ++i) rows[i] = i;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t other = exchanges[i], row = rows[i];
    if (other == i) continue;
    sign = -sign;
    rows[i] = rows[other];
    rows[other] = row;
  }
  return sign;
}
void run_solve(std::int64_t n, std::int64_t k, const double* t, std::int64_t down,
               std::int64_t across, bool lower, bool unit, MatrixRows b,
               const FactorRoom& room) noexcept {
  solve_triangular(n, k, {t, down, across}, lower, unit, b, room);
}
void run_qr(std::int64_t m, std::int64_t n, MatrixRows a, MatrixRows q_transposed,
            const FactorRoom& room) noexcept {
  reflect_columns(m, n, a, q_transposed, ReflectionRoom(most(most(m, n), reflections), n, room));
}

constexpr FactorKernels all_factor_kernels{factor_room, run_cholesky, run_lu, run_solve, run_qr};

}  // namespace
}  // namespace tenon::cpu
