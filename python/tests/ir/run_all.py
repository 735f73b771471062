"""Runs the tests of tenon.ir with a Python 3.10 that has numpy 2: this one, or TENON_ORACLE_PYTHON. Exits with 77
where there is none. `run_all.py NAME` runs one file of tests."""
import os
import pathlib
import sys
import unittest

try:
    if sys.version_info < (3, 10):
        raise ImportError("Python is older than 3.10")
    import numpy
    if int(numpy.__version__.partition(".")[0]) < 2:
        raise ImportError("numpy is older than 2")
except ImportError as missing:
    python = os.environ.get("TENON_ORACLE_PYTHON", sys.executable)
    if python != sys.executable and "TENON_ORACLE_RETRIED" not in os.environ:
        os.execve(python, [python, "-B", *sys.argv], {**os.environ, "TENON_ORACLE_RETRIED": "1"})
    print(f"SKIPPED: {missing}; set TENON_ORACLE_PYTHON to a Python that has it")
    sys.exit(77)

here = pathlib.Path(__file__).parent
pattern = f"{sys.argv[1]}_test.py" if len(sys.argv) > 1 else "*_test.py"
suite = unittest.defaultTestLoader.discover(str(here), pattern)
result = unittest.TextTestRunner(verbosity=2).run(suite)
sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
