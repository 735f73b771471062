// The numbers of the ops of points.def, by which kernels know them.
#pragma once

namespace tenon::cuda {

enum class UnaryReal {
#define TENON_CUDA_UNARY(id, expression) id,
#include "kernels/points.def"
#undef TENON_CUDA_UNARY
};
enum class UnaryInteger {
#define TENON_CUDA_UNARY_INTEGER(id, expression) id,
#include "kernels/points.def"
#undef TENON_CUDA_UNARY_INTEGER
};
enum class Predicate {
#define TENON_CUDA_PREDICATE(id, expression) id,
#include "kernels/points.def"
#undef TENON_CUDA_PREDICATE
};
enum class BinaryReal {
#define TENON_CUDA_BINARY(id, expression) id,
#include "kernels/points.def"
#undef TENON_CUDA_BINARY
};
enum class BinaryInteger {
#define TENON_CUDA_BINARY_INTEGER(id, expression) id,
#include "kernels/points.def"
#undef TENON_CUDA_BINARY_INTEGER
};
enum class Comparison {
#define TENON_CUDA_COMPARE(id, expression) id,
#include "kernels/points.def"
#undef TENON_CUDA_COMPARE
};

enum class Reduction { sum, mean, prod, max, min, any, all, argmax, argmin };

}  // namespace tenon::cuda
