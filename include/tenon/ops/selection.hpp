#pragma once

#include <tenon/op.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <source_location>

namespace tenon {

// Builders that pick, mask and count elements. Results whose size would depend on data have a
// stated capacity: a size of their own, filled up, with the number of what there is beside it.

/// How often each of 0 .. size - 1 occurs among the elements of `ids`, whatever their shape: i64
/// [size]; with weights, the sum of the weights there, in their dtype: numpy.bincount. In the order
/// of the elements.
///
/// Inputs    ids: i32 or i64; weights: its sizes, a floating or integer type
/// Errors    ids of another type                          Errc::unsupported_dtype
///           weights of other sizes                       Errc::shape_mismatch
///           size below 0                                 Errc::bad_argument
///           when run: an id outside [0, size)            Errc::out_of_range
Tensor bincount(const Tensor& ids, std::int64_t size, const Tensor& weights = {},
                const std::source_location& where = std::source_location::current());

/// y[..., c] = ids[...] == c ? on : off along a new last axis of size `classes`: ONNX OneHot. An id
/// outside [0, classes) gives a row of `off`.
Tensor one_hot(const Tensor& ids, std::int64_t classes, double on, double off, DType dtype = f32,
               const std::source_location& where = std::source_location::current());

/// x with `value` where the mask is true: torch.masked_fill. The mask is bool; it and a value that
/// is an array of x's dtype broadcast to x.
///
/// Errors    as for where; sizes that do not broadcast to x's    Errc::shape_mismatch
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value,
                   const std::source_location& where = std::source_location::current());
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value,
                   const std::source_location& where = std::source_location::current());

/// Matrices in the last two axes without what is above (tril) or below (triu) a diagonal: 0 there.
/// Diagonal k is k columns to the right of the main one. x: rank >= 2, any floating or integer type.
///
/// Errors    rank below 2            Errc::bad_shape
Tensor tril(const Tensor& x, std::int64_t k = 0,
            const std::source_location& where = std::source_location::current());
Tensor triu(const Tensor& x, std::int64_t k = 0,
            const std::source_location& where = std::source_location::current());

/// Square matrices with x's last axis as diagonal k and 0 elsewhere, the opposite of diagonal:
/// torch.diag_embed, numpy.diag of a vector. x: rank >= 1, any floating or integer type. Without
/// tags.
///
/// Errors    rank 0            Errc::bad_shape
Tensor diagonal_matrix(const Tensor& x, std::int64_t k = 0,
                       const std::source_location& where = std::source_location::current());

/// [rows, columns] with 1 on diagonal k, else 0: numpy.eye. Recorded in the graph of the active
/// Graph::Recording.
Tensor eye(std::int64_t rows, std::int64_t columns, std::int64_t k = 0, DType dtype = f32,
           const std::source_location& where = std::source_location::current());

struct NonzeroResult {
  Tensor indices;  ///< i64 [capacity, rank of x]: in row-major order; then rows of `fill`
  Tensor count;    ///< i64[]: how many elements are not 0, also if more than `capacity`
};

/// Where x is not 0 (or true), the first `capacity` places: numpy.argwhere, ONNX NonZero transposed.
/// A NaN is not 0.
///
/// Errors    capacity below 0                                  Errc::bad_argument
///           rank 0                                            Errc::bad_shape
NonzeroResult nonzero(const Tensor& x, std::int64_t capacity, std::int64_t fill = -1,
                      const std::source_location& where = std::source_location::current());

struct MaskedSelectResult {
  Tensor values;  ///< [capacity], x's dtype: in row-major order; then `fill`
  Tensor count;   ///< i64[]: how many were selected, also if more than `capacity`
};

/// The elements of x where the mask is true, the first `capacity` of them: torch.masked_select. The
/// mask is bool and broadcasts to x. The gradient goes to the elements that are returned.
///
/// Errors    capacity below 0                             Errc::bad_argument
///           sizes that do not broadcast to x's           Errc::shape_mismatch
///           mask not bool                                Errc::unsupported_dtype
MaskedSelectResult masked_select(
    const Tensor& x, const Tensor& mask, std::int64_t capacity, double fill = 0,
    const std::source_location& where = std::source_location::current());

}  // namespace tenon
