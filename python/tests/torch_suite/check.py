"""Archives of networks.py, read without torch and run, and compared with what torch computed.

    python python/tests/torch_suite/check.py FOLDER [NAME...] [--write docs/torch.md]
"""

import argparse
import json
import pathlib
import re
import sys
import time
import traceback
import zipfile

import numpy as np

import tenon.torch


_ALLOWED = {"float16": 1e-3, "bfloat16": 8e-3}
_STEPS = {"quantised": 1e-2}  # results that may be one step of their scale apart


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
    """The largest difference, as a share of the largest number; infinite for another type or other sizes.

    Of half-precision numbers it is counted less, so that 1e-4 is what is allowed of every type.
    """
    made = np.asarray(made)
    want = typed(want)
    if made.shape != want.shape or made.dtype != want.dtype:
        return np.inf
    if not want.size:
        return 0.0
    kind = np.complex128 if np.iscomplexobj(want) else np.float64
    wide, best = made.astype(kind), want.astype(kind)
    same = np.isclose(wide, best, rtol=0, atol=0, equal_nan=True)
    with np.errstate(invalid="ignore"):
        differences = np.where(same, 0, np.abs(wide - best))
    scale = np.abs(best[np.isfinite(best)]).max(initial=1e-6)
    return float(differences.max() / scale) * 1e-4 / _ALLOWED.get(made.dtype.name, 1e-4)


def compare(path, arrays):
    """(the largest difference of all calls, seconds to read)"""
    begin = time.perf_counter()
    model = tenon.torch.Model(path)
    seconds = time.perf_counter() - begin
    worst = gradients_apart(path, arrays)
    for given, wanted in zip(calls(arrays, "in"), calls(arrays, "out")):
        args, kwargs = model.structure(list(map(typed, given)))
        made = leaves(model(*args, **kwargs))
        if len(made) != len(wanted):
            return np.inf, seconds
        worst = max([worst, *(apart(one, want) for one, want in zip(made, wanted))])
    return worst, seconds


def gradients_apart(path, arrays):
    """The same of the gradients of the first call's sum, where they were recorded."""
    wanted = {int(name[len("grad0_"):]): arrays[name] for name in arrays.files if name.startswith("grad0_")}
    if not wanted or path.stem.endswith("_core"):  # PyTorch's gradients are of ops, not of what they are made of
        return 0.0
    model = tenon.torch.Model(path)
    given = list(map(typed, calls(arrays, "in")[0]))
    args, kwargs = model.structure(given)
    model(*args, **kwargs)  # fixes the sizes and values that the program needs
    names = [name for name, _ in model.program.parameters()]
    places = [int(name.removeprefix("arguments_")) if name.startswith("arguments_") else i for i, name in enumerate(names)]
    taken = [i for i, place in enumerate(places) if place in wanted]

    def total(*inputs):
        results = tenon.call(model.program, *inputs)
        results = results if isinstance(results, (tuple, list)) else [results]
        return sum(one.sum() for one in results if one.dtype == "f32")

    made = tenon.grad(total, argnums=tuple(taken), allow_unused=True)(*(given[place] for place in places))
    return max((apart(one, wanted[places[i]]) for one, i in zip(made, taken)), default=0.0)


def nodes(path):
    """How many nodes an archive's graph has."""
    with zipfile.ZipFile(path) as archive:
        name = next(one for one in archive.namelist() if "/models/" in one and one.endswith(".json"))
        return len(json.loads(archive.read(name))["graph_module"]["graph"]["nodes"])


def write(page, folder, results):
    """Puts a table of the results into a page."""
    lines = ["| network | nodes | apart | to read, s | nodes, core | apart, core | to read, core, s |",
             "|---|---|---|---|---|---|---|"]
    for name in sorted(one for one in results if not one.endswith("_core")):
        cells = [name]
        for form in (name, f"{name}_core"):
            worst, seconds = results.get(form, (np.nan, np.nan))
            cells += [str(nodes(folder / f"{form}.pt2")), f"{worst:.1e}", f"{seconds:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    text = page.read_text()
    made = re.sub(r"(<!-- networks -->\n).*?(\n<!-- end of networks -->)",
                  lambda found: found[1] + "\n" + "\n".join(lines) + "\n" + found[2], text, flags=re.S)
    page.write_text(made)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    folder = options.folder
    names = options.names or sorted(one.stem for one in folder.glob("*.npz"))
    failed, results = 0, {}
    for name in names:
        arrays = np.load(folder / f"{name}.npz")
        for path in (folder / f"{name}.pt2", folder / f"{name}_core.pt2"):
            if not path.is_file():
                continue
            try:
                worst, seconds = results[path.stem] = compare(path, arrays)
                is_right = worst <= _STEPS.get(name, 1e-4)
                failed += not is_right
                print(f"{path.stem:24} {worst:.1e} {seconds:.2f} s{'' if is_right else '  WRONG'}", flush=True)
            except Exception as error:
                failed += 1
                print(f"{path.stem:24} {type(error).__name__}: {str(error)[:600]}", flush=True)
                if not isinstance(error, tenon.Error):
                    traceback.print_exc()
    if options.write:
        write(options.write, folder, results)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
