#define Eigen TenonEigen
#include <tenon/ops/linear_algebra.hpp>

#include <Eigen/SVD>
namespace tenon {
void f(const double* p, long m, long n, double* o) {
  ::Eigen::Map<const ::Eigen::MatrixXd> a(p, m, n);
  const ::Eigen::BDCSVD<::Eigen::MatrixXd> svd(a, ::Eigen::ComputeThinU | ::Eigen::ComputeThinV);
  ::Eigen::Map<::Eigen::MatrixXd> y(o, m, n);
  y = svd.matrixV();
}
}  // namespace tenon
