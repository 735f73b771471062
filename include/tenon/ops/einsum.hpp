#pragma once

#include <tenon/ops/dot.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string_view>

namespace tenon {

/// Sums of products by Einstein's convention: `einsum("bij,bjk->bik", {a, b})`. numpy.einsum's
/// language: a letter names an axis, `...` stands for the axes that have none (aligned at the
/// innermost one), a letter twice in one operand takes the diagonal, letters that the result lacks
/// are summed over. Without `->` the result has the axes of `...`, then the letters that occur once,
/// in alphabetical order. Axes of size 1 broadcast; one whose size is symbolic is of the letter's
/// size, where another operand's is known. Spaces do not count.
///
/// Composed of views, products and `matmul`, whose dtypes and numerics apply. Operands are taken in
/// pairs, the pair of the fewest multiplications first; sizes may be symbolic, of diagonals they
/// may not. The result has no tags.
///
/// Errors  bad_argument    a letter of the result twice, or one that no operand has; another
///                         character; not one part per operand
///         shape_mismatch  not one letter per axis; sizes of a letter differ
///         bad_shape       more than 8 axes on the way
Tensor einsum(std::string_view equation, std::span<const Tensor> operands,
              const std::source_location& where = std::source_location::current());
Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands,
              const std::source_location& where = std::source_location::current());

/// y_k = x[.., k, .., k + offset, ..], along a new last axis; `axis1` and `axis2` go. A view where
/// x's strides allow it. Errc::bad_argument for one axis twice or an unknown size.
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, const AxisRef& axis1 = -2,
                const AxisRef& axis2 = -1,
                const std::source_location& where = std::source_location::current());
/// The sum of a diagonal.
Tensor trace(const Tensor& x, std::int64_t offset = 0, const AxisRef& axis1 = -2,
             const AxisRef& axis2 = -1,
             const std::source_location& where = std::source_location::current());

/// All products of an element of a and one of b: [elements of a, elements of b].
Tensor outer(const Tensor& a, const Tensor& b,
             const std::source_location& where = std::source_location::current());
/// Sums over the last axis of both: [axes of a but the last, axes of b but the last].
Tensor inner(const Tensor& a, const Tensor& b,
             const std::source_location& where = std::source_location::current());
/// Sums over the last `axes` axes of a and the first ones of b. Pairs of axes: `dot`.
Tensor tensordot(const Tensor& a, const Tensor& b, std::int64_t axes = 2,
                 const std::source_location& where = std::source_location::current());
/// Kronecker's product: blocks a_ij * b. The operand of fewer axes gets leading ones of size 1;
/// rank 4 at most (Errc::bad_shape).
Tensor kron(const Tensor& a, const Tensor& b,
            const std::source_location& where = std::source_location::current());

}  // namespace tenon
