"""Archives of networks.py, read without torch and run, and compared with what torch computed.

    python python/tests/torch_suite/check.py FOLDER [NAME...]
"""

import pathlib
import sys
import time
import traceback

import numpy as np

import tenon.torch


def leaves(value):
    """The arrays of nested results, in torch's order."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key])]
    if isinstance(value, (tuple, list)):
        return [leaf for one in value for leaf in leaves(one)]
    return [] if value is None else [value]


def calls(arrays, prefix):
    """The arrays of each call, in order."""
    found = {}
    for name in arrays.files:
        if name.startswith(prefix):
            call, place = map(int, name[len(prefix):].split("_"))
            found.setdefault(call, {})[place] = arrays[name]
    return [[held[place] for place in sorted(held)] for _, held in sorted(found.items())]


def typed(array):
    """An array as it was recorded: bf16 as its bytes."""
    if array.dtype != np.dtype("V2"):
        return array
    import ml_dtypes
    return array.view(ml_dtypes.bfloat16)


def apart(made, want):
    """The largest difference, as a share of the largest number; infinite for another type or other sizes."""
    made = np.asarray(made)
    want = typed(want)
    if made.shape != want.shape or made.dtype != want.dtype:
        return np.inf
    if not want.size:
        return 0.0
    wide, best = made.astype(np.float64), want.astype(np.float64)
    same = np.isclose(wide, best, rtol=0, atol=0, equal_nan=True)
    with np.errstate(invalid="ignore"):
        differences = np.where(same, 0, np.abs(wide - best))
    scale = np.abs(best[np.isfinite(best)]).max(initial=1e-6)
    return float(differences.max() / scale)


def compare(path, arrays):
    """(the largest difference of all calls, seconds to read)"""
    begin = time.perf_counter()
    model = tenon.torch.Model(path)
    seconds = time.perf_counter() - begin
    worst = 0.0
    for given, wanted in zip(calls(arrays, "in"), calls(arrays, "out")):
        args, kwargs = model.structure(list(map(typed, given)))
        made = leaves(model(*args, **kwargs))
        if len(made) != len(wanted):
            return np.inf, seconds
        worst = max([worst, *(apart(one, want) for one, want in zip(made, wanted))])
    return worst, seconds


def main():
    folder = pathlib.Path(sys.argv[1])
    names = sys.argv[2:] or sorted(one.stem for one in folder.glob("*.npz"))
    failed = 0
    for name in names:
        arrays = np.load(folder / f"{name}.npz")
        for path in (folder / f"{name}.pt2", folder / f"{name}_core.pt2"):
            if not path.is_file():
                continue
            try:
                worst, seconds = compare(path, arrays)
                failed += worst > 1e-4
                print(f"{path.stem:24} {worst:.1e} {seconds:.2f} s{'' if worst <= 1e-4 else '  WRONG'}", flush=True)
            except Exception as error:
                failed += 1
                print(f"{path.stem:24} {type(error).__name__}: {str(error)[:600]}", flush=True)
                if "-v" in sys.argv or not isinstance(error, tenon.Error):
                    traceback.print_exc()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
