// For test programs that link it: the backends of tenon::tenon are registered before main() runs.
#include <tenon/tenon.hpp>
