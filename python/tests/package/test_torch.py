"""tenon.torch: recorded archives of torch.export.save against what PyTorch computed, and what is refused.

python/tests/torch_suite records the archives and compares every op and whole networks; that needs PyTorch.
"""

import contextlib
import gc
import importlib.util
import io
import json
import math
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

import numpy as np

try:
    import tenon
    import tenon.torch
    from tenon.importing import sizes as sz
    from tenon.importing.values import Builder, Value
    from tenon.torch import expressions, node
except ImportError as error:  # the compiled part is not built for this Python
    raise unittest.SkipTest(str(error)) from None

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "torch_suite"))
import check  # noqa: E402
import fuzz  # noqa: E402
import op_table  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "exported"
EXPECTED = np.load(FOLDER / "expected.npz")
DOCS = pathlib.Path(__file__).parents[3] / "docs"


class Arrays:
    """The arrays of one archive in EXPECTED."""

    def __init__(self, name):
        self.name = name.removesuffix("_core")
        self.files = [key.partition(".")[2] for key in EXPECTED.files if key.startswith(f"{self.name}.")]

    def __getitem__(self, key):
        return EXPECTED[f"{self.name}.{key}"]


def changed(name, change):
    """The bytes of an archive whose graph `change` has changed."""
    made = io.BytesIO()
    with zipfile.ZipFile(FOLDER / f"{name}.pt2") as source, zipfile.ZipFile(made, "w") as target:
        for one in source.infolist():
            data = source.read(one)
            if one.filename.endswith("models/model.json"):
                document = json.loads(data)
                change(document)
                data = json.dumps(document)
            target.writestr(one.filename, data)
    return made.getvalue()


class Recorded(unittest.TestCase):
    def test_results_are_those_of_pytorch(self):
        paths = sorted(FOLDER.glob("*.pt2"))
        self.assertEqual(len(paths), 17)
        for path in paths:
            with self.subTest(path.stem):
                worst, _ = check.compare(path, Arrays(path.stem))
                self.assertLess(worst, 1e-5)

    def test_nothing_is_left_of_reading(self):
        gc.collect()
        gc.disable()
        try:
            kept = tenon.torch.load(FOLDER / "convolutions.pt2")
            left = [one for one in gc.get_objects() if isinstance(one, (Builder, Value))]
        finally:
            gc.enable()
        self.assertEqual((bool(kept.folded), left), (True, []))

    def test_a_program_has_names_and_weights(self):
        program = tenon.torch.load(FOLDER / "convolutions.pt2")
        [(name, type_)] = list(program.parameters())
        self.assertEqual((name, str(type_)[:5]), ("image", "f32[s"))
        # Scaled by a batch norm, it became part of another array.
        self.assertEqual(sorted(program.folded), sorted(program.constants()))
        self.assertNotIn("first.weight", program.folded)
        self.assertIn("first.weight", tenon.torch.load(FOLDER / "convolutions.pt2", optimize=False).folded)
        image = EXPECTED["convolutions.in2_0"]
        [y] = tenon.Session(program).forward(image=image)
        np.testing.assert_allclose(y.numpy(), EXPECTED["convolutions.out2_0"], rtol=1e-4, atol=1e-5)

    def test_a_size_can_be_fixed(self):
        program = tenon.torch.load(FOLDER / "convolutions.pt2", shapes={"image": (3, 3, 16, 16)})
        self.assertIn("image: f32[3, 3, 16, 16]", str(program))
        [y] = tenon.Session(program).forward(image=EXPECTED["convolutions.in2_0"])
        np.testing.assert_allclose(y.numpy(), EXPECTED["convolutions.out2_0"], rtol=1e-4, atol=1e-5)

    def test_an_input_can_be_a_constant(self):
        program = tenon.torch.load(FOLDER / "mixed.pt2", values={"scale": EXPECTED["mixed.in0_2"]})
        self.assertEqual([name for name, _ in program.parameters()], ["x", "options_counts"])

    def test_bytes_and_programs_of_torch(self):
        archive = (FOLDER / "branches.pt2").read_bytes()
        y, steps, z = tenon.torch.Model(archive)(EXPECTED["branches.in0_0"])
        self.assertEqual(int(steps), int(EXPECTED["branches.out0_1"]))
        with self.assertRaisesRegex(TypeError, "dict is no path"):
            tenon.torch.load({})

    def test_state_is_kept_and_reset(self):
        arrays, model = Arrays("decoder"), tenon.torch.Model(FOLDER / "decoder.pt2")
        self.assertEqual(sorted(model.state), ["keys0", "values0"])
        ids, places = arrays["in0_0"], arrays["in0_1"]
        first = model(ids, places)
        np.testing.assert_allclose(first, arrays["out0_0"], rtol=1e-4, atol=1e-5)
        self.assertTrue(model.state["keys0"][:, :, places].any())
        model.reset()
        self.assertFalse(model.state["keys0"].any())

    def test_state_is_inputs_and_results_of_the_program(self):
        program = tenon.torch.load(FOLDER / "decoder_core.pt2")
        self.assertEqual([name for name, _ in program.parameters()][:2], ["keys0", "values0"])
        self.assertEqual([name for name, _ in program.results()][1:], ["keys0_after", "values0_after"])

    def test_sizes_and_values_that_ops_need_are_read_as_they_come(self):
        arrays, model = Arrays("sized"), tenon.torch.Model(FOLDER / "sized.pt2", threads=1)
        self.assertIsNone(model.program)
        with self.assertRaisesRegex(tenon.UnsupportedError, "give `shapes`"):
            tenon.torch.load(FOLDER / "sized.pt2")
        for call in (0, 1, 0):
            x, mask = arrays[f"in{call}_0"], arrays[f"in{call}_1"]
            y, *_ = model(x, mask)
            np.testing.assert_allclose(y, arrays[f"out{call}_0"], rtol=1e-4, atol=1e-4)
            self.assertNotEqual(model(x + 1, mask)[0].tolist(), y.tolist())  # of these sizes, not of these numbers
        self.assertEqual((model.fixed, len(model._programs)), ({"mask"}, 2))
        self.assertIn("f32[2, 2, 4, 5]", str(model.program))
        self.assertNotIn("[30, 6, 3]", str(model.program))  # differences of all pairs of points
        with self.assertRaisesRegex(tenon.ArgumentError, "2 elements along axis 2, not 3 to 9"):
            model(x[:, :, :2], mask)

    def test_sizes_without_a_least_one_may_be_0_and_1(self):
        model = tenon.torch.Model(FOLDER / "solved.pt2")
        for count in (0, 1, 2):
            parts, *_ = model(np.zeros((count, 4, 4), "f4"), np.zeros((count, 4, 2), "f4"))
            self.assertEqual(parts[0].shape, (count, 4, 4))

    def test_results_in_classes_with_named_fields_are_dicts(self):
        def change(context, document):
            spec = document["graph_module"]["module_call_graph"][0]["signature"]
            version, tree = json.loads(spec["out_spec"])
            tree.update(type="some.modeling.Output", context=context)
            spec["out_spec"] = json.dumps([version, tree])

        made = tenon.torch.Model(changed("branches", lambda document: change('["y", "steps", "z"]', document)))
        results = made(EXPECTED["branches.in0_0"])
        self.assertEqual(list(results), ["y", "steps", "z"])
        np.testing.assert_allclose(results["y"], EXPECTED["branches.out0_0"], rtol=1e-5)
        for context in ('["y", "z"]', "[1, 2, 3]", "null", "{", '{"y": 1}'):
            with self.assertRaisesRegex(tenon.UnsupportedError, "some.modeling.Output among"):
                tenon.torch.Model(changed("branches", lambda document: change(context, document)))

    def test_nested_arguments_and_results(self):
        model = tenon.torch.Model(FOLDER / "mixed.pt2")
        x, counts, scale = (EXPECTED[f"mixed.in1_{i}"] for i in range(3))
        types, sizes, rest = model(x, {"counts": counts}, scale=scale)
        self.assertEqual([one.dtype.name for one in types],
                         ["float32", "float32", "int32", "bool", "float16", "float32"])
        self.assertEqual(int(sizes["rows"]), 2)
        self.assertIsNone(rest[-1])
        with self.assertRaisesRegex(tenon.ArgumentError, "counts"):
            model(x, {"count": counts}, scale=scale)


    def test_command_writes_a_text_and_its_weights(self):
        from tenon.torch.__main__ import main
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "model.tenon")
            source = str(FOLDER / "convolutions.pt2")
            self.assertEqual(main([source, "-o", str(target), "--shape", "image=3,3,16,16"]), 0)
            program, file = tenon.parse(target.read_text()), tenon.open(target.with_suffix(".safetensors"))
            [y] = tenon.Session(program, {name: file[name] for name in file}).forward(EXPECTED["convolutions.in2_0"])
            np.testing.assert_allclose(y.numpy(), EXPECTED["convolutions.out2_0"], rtol=1e-4, atol=1e-5)
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                self.assertEqual(main([str(pathlib.Path(folder, "none.pt2"))]), 3)
            self.assertIn("no such file", printed.getvalue())
            with contextlib.redirect_stderr(io.StringIO()) as printed, \
                    unittest.mock.patch("tenon.torch.__main__.load", side_effect=KeyboardInterrupt):
                self.assertEqual(main([source]), 6)
            self.assertIn("tenon.torch: Cancelled", printed.getvalue())

    @unittest.skipUnless(os.environ.get("TENON_TOOL"), "SKIPPED: TENON_TOOL names no tool")
    def test_the_tool_imports_and_exports(self):
        variables = {**os.environ, "TENON_PYTHON": sys.executable}

        def run(*arguments, status=0):
            done = subprocess.run([os.environ["TENON_TOOL"], *map(str, arguments)], env=variables,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, status, done.stderr)
            return done

        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder, "model.tenon")
            said = run("import", FOLDER / "convolutions.pt2", "-o", target, "--shape", "image=3,3,16,16", "--json")
            self.assertEqual(json.loads(said.stdout), {"written": str(target)})
            program, file = tenon.parse(target.read_text()), tenon.open(target.with_suffix(".safetensors"))
            [y] = tenon.Session(program, {name: file[name] for name in file}).forward(EXPECTED["convolutions.in2_0"])
            np.testing.assert_allclose(y.numpy(), EXPECTED["convolutions.out2_0"], rtol=1e-4, atol=1e-5)
            none = pathlib.Path(folder, "none.pt2")
            said = run("import", none, "--json", status=3)
            self.assertEqual(json.loads(said.stdout),
                             {"error": {"code": "NotFound", "message": "no such file", "where": str(none)}})
            self.assertEqual(said.stderr, f"tenon.torch: NotFound: {none}: no such file\n")
            self.assertEqual(run("import", none, status=3).stdout, "")
            said = run("import", none, "--shape", "x=a", "--json", status=2)
            self.assertEqual(json.loads(said.stdout)["error"]["code"], "BadArgument")
            self.assertIn("tenon.torch: BadArgument: command line: argument --shape: 'x=a'", said.stderr)

            # Files are replaced, and nothing else.
            source, pipe = FOLDER / "convolutions.pt2", pathlib.Path(folder, "pipe")
            os.mkfifo(pipe)
            link = pathlib.Path(folder, "link.tenon")
            link.symlink_to("model.tenon")
            run("import", source, "-o", link)
            self.assertTrue(link.is_symlink())
            self.assertIn("link.safetensors", target.read_text())
            for output, status, says in ((pipe, 3, "NotRegularFile"), (pathlib.Path(folder, "no", "x"), 5, "IoError"),
                                         (pathlib.Path(folder, "x.safetensors"), 2, "is the file of its weights")):
                self.assertIn(says, run("import", source, "-o", output, status=status).stderr)
                self.assertFalse(output.is_file())
            self.assertTrue(pipe.is_fifo())
            self.assertFalse(pathlib.Path(folder, "pipe.safetensors").exists())
            foreign = pathlib.Path(folder, os.fsdecode(b"\xff.tenon"))
            self.assertIn("is UTF-8, which that name is not", run("import", source, "-o", foreign, status=2).stderr)
            self.assertFalse(foreign.with_suffix(".safetensors").exists())
            own = pathlib.Path(folder, "own.pt2")
            own.write_bytes(source.read_bytes())
            self.assertIn("is the model", run("import", own, "-o", own, status=2).stderr)
            self.assertEqual(own.read_bytes(), source.read_bytes())
            run("import", source, "-o", target, "--shape", "image=3,3,16,16")
            if importlib.util.find_spec("onnx"):
                self.assertIn("NotFound", run("export", none.with_suffix(".tenon"), "-o", own, status=3).stderr)
                self.assertIn("NotRegularFile", run("export", target, "-o", pipe, status=3).stderr)
                self.assertTrue(pipe.is_fifo())
                run("export", target, "-o", pathlib.Path(folder, "model.onnx"))
                run("import", pathlib.Path(folder, "model.onnx"), "-o", pathlib.Path(folder, "again.tenon"))
                again = tenon.parse(pathlib.Path(folder, "again.tenon").read_text())
                file = tenon.open(pathlib.Path(folder, "again.safetensors"))
                [y] = tenon.Session(again, {name: file[name] for name in file}).forward(EXPECTED["convolutions.in2_0"])
                np.testing.assert_allclose(y.numpy(), EXPECTED["convolutions.out2_0"], rtol=1e-4, atol=1e-5)


class Refused(unittest.TestCase):
    def refuse(self, source, kind, *words):
        with self.assertRaises(kind) as caught:
            tenon.torch.load(source)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_lists_are_arrays_of_the_type_that_was_exported(self):
        image = np.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype("f4")
        model = tenon.torch.Model(FOLDER / "convolutions.pt2")
        np.testing.assert_array_equal(model(image.tolist()), model(image))
        for wrong, words in ((None, "NoneType is no array of numbers"), ("x", "str is no array of numbers"),
                             (image > 0, "is bool"), ((image > 0).tolist(), "is bool")):
            with self.assertRaisesRegex(tenon.ArgumentError, words):
                model(wrong)

    def test_sizes_that_were_not_exported(self):
        model = tenon.torch.Model(FOLDER / "convolutions.pt2")
        with self.assertRaisesRegex(tenon.ArgumentError, "9 elements along axis 0, not 1 to 8"):
            model(np.zeros((9, 3, 16, 16), np.float32))
        with self.assertRaisesRegex(tenon.ArgumentError, "15 elements along axis 2, not 16"):
            model(np.zeros((1, 3, 15, 16), np.float32))
        with self.assertRaisesRegex(tenon.ArgumentError, "3 axes, not 4"):
            model(np.zeros((3, 16, 16), np.float32))
        with self.assertRaisesRegex(tenon.ArgumentError, "1 to 8"):
            tenon.torch.load(FOLDER / "convolutions.pt2", shapes={"image": (9, 3, 16, 16)})

    def test_arguments_by_name(self):
        model = tenon.torch.Model(FOLDER / "written.pt2")
        x, y = (np.full((3, 4), value, np.float32) for value in (1, 2))
        want = model(x, y)
        for got in (model(x, y=y), model(y=y, x=x)):
            for one, other in zip(got, want):
                np.testing.assert_array_equal(one, other)
        for args, words in (((), {}), ((x,), {}), ((x, y, x), {}), ((x,), {"x": x}), ((x,), {"z": y})):
            with self.assertRaisesRegex(tenon.ArgumentError, "where the module has x, y"):
                model(*args, **words)

    def test_models_say_what_they_take(self):
        self.assertRegex(repr(tenon.torch.Model(FOLDER / "mixed.pt2")),
                         r"^Model \(x: f32\[s\d+, 4\], options_counts: i32\[4\], scale: f32\[\]\)$")
        with self.assertRaisesRegex(TypeError, "treads"):
            tenon.torch.Model(FOLDER / "mixed.pt2", treads=1)

    def test_wrong_arguments_of_load(self):
        path = FOLDER / "convolutions.pt2"
        for options, word in (({"shapes": {"picture": 1}}, "picture"), ({"values": {"picture": 1}}, "picture"),
                              ({"shapes": {"image": (1, 3)}}, "4 axes"),
                              ({"values": {"image": np.zeros((1, 3, 16, 16))}}, "float64")):
            with self.subTest(word), self.assertRaisesRegex(tenon.ArgumentError, word):
                tenon.torch.load(path, **options)

    def test_an_op_that_is_not_taken_is_named_with_the_users_line(self):
        def change(document):
            node = document["graph_module"]["graph"]["nodes"][0]
            node["target"] = "torch.ops.aten.special_airy_ai.default"

        self.refuse(changed("convolutions", change), tenon.UnsupportedError, "aten.special_airy_ai.default 'conv2d'",
                    "fixtures.py:", "F.hardswish(self.norm(self.first(image)))")

    def test_an_argument_that_is_not_taken_is_named(self):
        def change(document):
            node = next(one for one in document["graph_module"]["graph"]["nodes"] if "pad" in one["target"])
            next(one for one in node["inputs"] if one["name"] == "mode")["arg"] = {"as_string": "mirror"}

        self.refuse(changed("convolutions", change), tenon.UnsupportedError, "aten.pad.default", "argument 'mode'",
                    "'mirror'")

    def test_tables_that_change_are_refused_with_a_reason(self):
        def change(document):
            document["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.embedding_renorm_.default"

        self.refuse(changed("convolutions", change), tenon.UnsupportedError, "max_norm changes the table")

    def test_random_numbers_are_refused_with_a_reason(self):
        def change(document):
            document["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.randn.default"

        self.refuse(changed("convolutions", change), tenon.UnsupportedError, "draws random numbers")

    def test_a_result_that_nothing_uses_is_not_computed(self):
        def with_node(target):
            def change(document):
                document["graph_module"]["graph"]["nodes"].append(
                    {"target": target, "inputs": [], "outputs": [{"as_tensor": {"name": "unused"}}], "metadata": {}})
            return change

        for name in ("convolutions", "decoder"):  # the second changes values in place
            self.assertIsNotNone(tenon.torch.load(changed(name, with_node("torch.ops.aten.rand.default"))))
            self.refuse(changed(name, with_node("torch.ops.my.write.default")), tenon.UnsupportedError, "my.write.default")

    def test_places_in_memory_that_are_not_the_operand_s(self):
        def with_argument(name, value):
            def change(document):
                for node in document["graph_module"]["graph"]["nodes"]:
                    for one in node["inputs"] if node["target"].endswith("as_strided.default") else ():
                        if one["name"] == name:
                            one["arg"] = value
            return changed("strided", change)

        for name, value, kind, words in (
                ("storage_offset", {"as_int": 90}, tenon.UnsupportedError, "of another value in its memory"),
                ("storage_offset", {"as_int": -1}, tenon.InputError, "from -1"),
                ("stride", {"as_ints": [1, 2, 3, 4, 5]}, tenon.InputError, "strides"),
                ("stride", {"as_ints": [2**61]}, tenon.Error, "as_strided"),
                ("size", {"as_ints": [2**40, 1, 1]}, tenon.InputError, "as_strided")):
            with self.subTest(f"{name} {value}"):
                self.refuse(with_argument(name, value), kind, words)

    def test_malformed_graphs(self):
        def graph(document):
            return document["graph_module"]["graph"]

        def swap(document):
            graph(document)["nodes"].insert(0, graph(document)["nodes"].pop())

        def recur(document):
            graph(document)["nodes"][0]["inputs"][0]["arg"]["as_tensor"]["name"] = \
                graph(document)["nodes"][0]["outputs"][0]["as_tensor"]["name"]

        def twice(document):
            graph(document)["nodes"].append(graph(document)["nodes"][-1])

        def lie(document):
            name = graph(document)["nodes"][0]["outputs"][0]["as_tensor"]["name"]
            graph(document)["tensor_values"][name]["sizes"][1] = {"as_int": 5}

        def rename(document):
            graph(document)["nodes"][0]["inputs"][0]["name"] = "picture"

        def version(document):
            document["schema_version"]["major"] = 99

        for change, kind, word in ((swap, tenon.InputError, "before it is used"), (recur, tenon.InputError, "before"),
                                   (twice, tenon.InputError, "twice"), (lie, tenon.InputError, "where the file says"),
                                   (rename, tenon.InputError, "picture"), (version, tenon.InputError, "schema 99")):
            with self.subTest(change.__name__):
                self.refuse(changed("convolutions", change), kind, word)

    def test_archives_that_are_none(self):
        whole = (FOLDER / "branches.pt2").read_bytes()
        for source, word in ((b"", "no archive"), (whole[:-30], "no archive"), (b"PK\3\4" + bytes(40), "no archive"),
                             (FOLDER / "none.pt2", "no such file")):
            with self.subTest(word):
                self.refuse(source, tenon.InputError, word)

    def test_pickled_weights_are_not_read(self):
        made = io.BytesIO()
        with zipfile.ZipFile(FOLDER / "encoder_core.pt2") as source, zipfile.ZipFile(made, "w") as target:
            for one in source.infolist():
                target.writestr(one.filename, source.read(one).replace(b'"use_pickle": false', b'"use_pickle": true'))
        self.refuse(made.getvalue(), tenon.UnsupportedError, "nothing is unpickled")

    def test_other_byte_orders_are_refused(self):
        made = io.BytesIO()
        with zipfile.ZipFile(FOLDER / "encoder_core.pt2") as source, zipfile.ZipFile(made, "w") as target:
            for one in source.infolist():
                target.writestr(one.filename, b"big" if one.filename.endswith("byteorder") else source.read(one))
        self.refuse(made.getvalue(), tenon.UnsupportedError, "byte order")

    def test_weights_that_are_too_short(self):
        made = io.BytesIO()
        with zipfile.ZipFile(FOLDER / "encoder_core.pt2") as source, zipfile.ZipFile(made, "w") as target:
            for one in source.infolist():
                data = source.read(one)
                target.writestr(one.filename, data[:-1] if "/weight_" in one.filename else data)
        self.refuse(made.getvalue(), tenon.InputError, "Truncated", "weight '")

    def test_old_archives_are_refused_with_what_to_do(self):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as target:
            target.writestr("serialized_exported_program.json", "{}")
        self.refuse(made.getvalue(), tenon.UnsupportedError, "save it again")

    def test_files_of_torch_save_are_refused_with_what_to_do(self):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as target:
            target.writestr("archive/data.pkl", pickle.dumps(fuzz.Canary()))
        for source in (made.getvalue(), pickle.dumps(fuzz.Canary(), protocol=2)):
            self.refuse(source, tenon.UnsupportedError, "nothing is unpickled", "torch.export.export")
        self.assertEqual(fuzz._UNPICKLED, [])

    def test_random_changes_give_typed_errors(self):
        seed = 20261126
        findings = fuzz.run(FOLDER, rounds=150, seed=seed)
        self.assertEqual(findings, [], f"seed {seed}")


class Parts(unittest.TestCase):
    def test_types_are_promoted_as_torch_does(self):
        pairs = [line.split() for line in EXPECTED["promotions"]]
        self.assertEqual(len(pairs), 100)
        for a, b, want in pairs:
            self.assertEqual(node._joined(a, b), want, f"{a} and {b}")

    def test_copies_are_their_operands_of_which_gradients_go_on(self):
        x = object()
        for name in ("clone", "contiguous", "alias", "positive", "lift_fresh_copy"):
            self.assertIs(node.HANDLERS[f"aten.{name}.default"](None, x), x)

    def test_sizes_of_sympy(self):
        s, t = sz.Size.named("s"), sz.Size.named("t")
        symbols = expressions.Symbols({"s": s, "t": t, "four": 4})
        symbols.ranges = {"s": (1, 8)}

        def evaluate(text):
            return expressions.evaluate(text, symbols, "test")

        self.assertEqual(evaluate("Add(Mul(Integer(2), Symbol('s', integer=True)), Integer(1))"),
                         sz.add(sz.mul(2, s), 1))
        self.assertEqual(evaluate("FloorDiv(Mul(Integer(6), Symbol('s')), Integer(3))"), sz.mul(2, s))
        self.assertEqual(evaluate("Mul(Integer(-1), Symbol('four'))"), -4)
        self.assertEqual(evaluate("Mul(Integer(-1), FloorDiv(Mul(Integer(-1), Symbol('s')), Integer(2)))"),
                         sz.divide(sz.add(s, 1), 2))
        self.assertEqual(evaluate("Max(Integer(1), Symbol('s'))"), s)
        self.assertEqual(evaluate("Pow(Symbol('s'), Integer(2))"), sz.mul(s, s))
        self.assertEqual(symbols.order(s, 0), (1, True))
        self.assertEqual(symbols.order(t, 0), (1, False))
        self.assertEqual(evaluate("Min(Integer(8), Symbol('s'))"), s)
        self.assertIsNone(evaluate("Min(Integer(7), Symbol('s'))"))
        self.assertIsNone(evaluate("Max(Integer(1), Symbol('t'))"))
        self.assertIsNone(evaluate("Symbol('u')"))
        self.assertIsNone(evaluate("Min(Symbol('s'), Symbol('t'))"))
        self.assertIsNone(evaluate("__import__('os').getcwd()"))
        for text in ("Add(", "(" * 500 + ")" * 500, "Add(" * 80 + ")" * 80, "x" * 20_000, 7):
            with self.assertRaises(tenon.InputError):
                evaluate(text)

    def test_the_table_of_ops_is_that_of_the_code(self):
        page = (DOCS / "torch.md").read_text()
        self.assertIn(op_table.table(), page)

    def test_torch_is_not_imported(self):
        import subprocess
        code = ("import sys, tenon.torch; "
                f"tenon.torch.load({str(FOLDER / 'branches.pt2')!r}); "
                "sys.exit('torch' in sys.modules or 'onnx' in sys.modules)")
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class Live(unittest.TestCase):
    def test_programs_in_memory(self):
        import torch
        torch.manual_seed(1)
        module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
        rows = torch.export.Dim("rows", min=1, max=9)
        exported = torch.export.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: rows},))
        for one in (exported, exported.run_decompositions()):
            model = tenon.torch.Model(one)
            for count in (1, 5):
                x = torch.randn(count, 4)
                np.testing.assert_allclose(model(x.numpy()), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


    def test_changes_of_what_may_share_the_memory_of_several(self):
        import torch

        class Changed(torch.nn.Module):
            def __init__(self, function):
                super().__init__()
                self.function = function

            def forward(self, a, b):
                a = a.clone()
                made = self.function(a, b)
                made.diagonal().mul_(2)
                return made, a

        inputs = torch.arange(12.0).reshape(3, 4), torch.arange(4.0)
        for function in (lambda a, b: torch.broadcast_tensors(a, b)[0], lambda a, b: torch.einsum("ij->ji", a),
                         lambda a, b: torch.meshgrid(a[:, 0], b, indexing="ij")[0]):
            exported = torch.export.export(Changed(function), inputs)
            with self.assertRaisesRegex(tenon.UnsupportedError, "whether it is a copy is not known"):
                tenon.torch.Model(exported)
            made = tenon.torch.Model(exported.run_decompositions())(*(one.numpy() for one in inputs))
            for one, want in zip(made, Changed(function)(*inputs)):
                np.testing.assert_array_equal(one, want.numpy())

    def test_changes_of_a_reshape_whose_operand_is_not_used_later(self):
        import torch

        class Changed(torch.nn.Module):
            def __init__(self, later):
                super().__init__()
                self.later = later

            def forward(self, a, b):
                product = torch.einsum("ij,kj->ik", a, b).t()
                flat = torch.reshape(product, [product.shape[0] * product.shape[1]])
                again = flat[1:].reshape(-1, 1)
                again *= 2
                return (again + 1, product) if self.later else again + 1

        inputs = torch.arange(12.0).reshape(3, 4), torch.arange(20.0).reshape(5, 4)
        model = tenon.torch.Model(torch.export.export(Changed(False), inputs))
        np.testing.assert_array_equal(model(*(one.numpy() for one in inputs)), Changed(False)(*inputs).numpy())
        with self.assertRaisesRegex(tenon.UnsupportedError, "whether it is a copy is not known"):
            tenon.torch.Model(torch.export.export(Changed(True), inputs))

    def test_ops_in_place_whose_functional_op_has_another_overload(self):
        import torch

        class Changed(torch.nn.Module):
            def forward(self, x, y, i):
                return [x.clone().pow_(y), x.clone().float_power_(y) if x.dtype == torch.float64 else x,
                        x.clone().floor_divide_(y), x.clone().ldexp_(i), x.clone().clip_(y, y + 0.5)]

        for dtype in (torch.float32, torch.float64):
            x, y = torch.rand(3, 4, dtype=dtype) + 1, torch.rand(4, dtype=dtype) + 0.5
            inputs = x, y, torch.arange(4, dtype=torch.int32)
            model = tenon.torch.Model(torch.export.export(Changed(), inputs))
            for one, want in zip(model(*(one.numpy() for one in inputs)), Changed()(*inputs), strict=True):
                np.testing.assert_allclose(one, want.numpy(), rtol=1e-6)

    def test_products_by_a_parameter_of_one_column(self):
        import torch

        class Product(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.column = torch.nn.Parameter(torch.randn(4, 1))

            def forward(self, x):
                return x @ self.column

        module, x = Product(), torch.randn(2, 3, 4)
        made = tenon.torch.Model(torch.export.export(module, (x,)))(x.numpy())
        np.testing.assert_allclose(made, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)

    def test_what_torch_cannot_save_is_refused(self):
        import torch

        class Gradient(torch.nn.Module):  # exported with a tensor that has no data
            def forward(self, x):
                return torch.func.grad(lambda y: (y ** 3).sum())(x)

        exported = torch.export.export(Gradient(), (torch.ones(2),), strict=False)
        with self.assertRaisesRegex(tenon.UnsupportedError, "^Unsupported: exported program: PyTorch cannot save it: .+$"):
            tenon.torch.load(exported)

    def test_masks_that_vmap_made(self):
        import torch
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # as transformers does

        class Masked(torch.nn.Module):
            def forward(self, x, kept):
                rows, places = torch.arange(x.shape[0]), torch.arange(x.shape[-1])
                mask = torch.vmap(lambda b, i, j: (j <= i) & kept[b, j], (None, None, 0))
                mask = torch.vmap(torch.vmap(mask, (None, 0, None)), (0, None, None))
                with TransformGetItemToIndex():
                    return x.masked_fill(~mask(rows, places, places), 0.0)

        class Causal(torch.nn.Module):
            def forward(self, x):
                places = torch.arange(x.shape[-1])
                mask = torch.vmap(torch.vmap(lambda i, j: (j <= i) & (j > i - 3), (None, 0)), (0, None))
                return x.masked_fill(~mask(places, places), 0.0)

        x, kept = torch.randn(3, 5, 5), torch.rand(3, 5) > 0.3
        batch = torch.export.Dim("n", min=1, max=9)
        exported = torch.export.export(Causal(), (x,), dynamic_shapes=({0: batch},))
        with self.assertRaisesRegex(tenon.UnsupportedError, "lazy_load_decompositions"):
            saved = io.BytesIO()
            torch.export.save(exported, saved)
            tenon.torch.load(saved.getvalue())
        np.testing.assert_array_equal(tenon.torch.Model(exported)(x.numpy()), Causal()(x).numpy())
        exported = torch.export.export(Masked(), (x, kept), dynamic_shapes=({0: batch}, {0: batch}))
        with self.assertRaisesRegex(Exception, "flat_apply"):
            torch.export.save(exported, io.BytesIO())
        np.testing.assert_array_equal(tenon.torch.Model(exported)(x.numpy(), kept.numpy()), Masked()(x, kept).numpy())

        class Lost(Causal):
            def forward(self, x):
                changed = torch.atleast_2d(x[0, 0], x[0, 1])[1]
                changed.add_(1)
                return super().forward(x)

        class LostOfSeveral(Causal):
            def forward(self, x):
                torch._foreach_add_(torch.atleast_2d(x[0, 0], x[0, 1]), 1)
                return super().forward(x)

        for lost in (Lost(), LostOfSeveral()):
            self.assertFalse(np.array_equal(lost(x.clone()).numpy(), Causal()(x).numpy()))
            exported = torch.export.export(lost, (x,))
            with self.assertRaisesRegex(tenon.UnsupportedError, "atleast_2d.*loses"):
                tenon.torch.load(exported)

    def test_nonzero_of_values_without_axes(self):
        import torch

        class Places(torch.nn.Module):
            def forward(self, x):
                return [torch.nonzero(torch.tensor(one)) + x.sum().long() for one in (0.0, 3.0)]

        x = torch.ones(2)
        made = tenon.torch.Model(torch.export.export(Places(), (x,)))(x.numpy())
        self.assertEqual([one.shape for one in made], [tuple(one.shape) for one in Places()(x)])

    def test_gradients_end_where_a_program_detaches(self):
        import torch

        class Detached(torch.nn.Module):
            def forward(self, x):
                return (x * x.detach()).sum()

        x = torch.arange(4.0, requires_grad=True)
        Detached()(x).backward()
        program = tenon.torch.load(torch.export.export(Detached(), (x,)))
        made = tenon.Session(program.gradient(["x"])).forward(x.detach().numpy())[1]
        np.testing.assert_array_equal(made.numpy(), x.grad.numpy())

    def test_gradients_end_where_none_are_taken(self):
        import torch

        def nested(x):
            with torch.no_grad():
                y = x * 3
                with torch.enable_grad():
                    z = x * 2
            return x * y + z

        def plain(x):
            with torch.no_grad():
                y = x * 3
            return x * y
        x = torch.arange(1.0, 4)
        for function in (plain, nested):
            made, want = self.gradient(function, x)
            np.testing.assert_array_equal(made, want)

    def test_gradients_at_zeros_bounds_and_masks(self):
        import torch
        import torch.nn.functional as F
        linalg = torch.linalg
        zeros, rows = torch.zeros(2, 3), torch.tensor([[0.0, 0, 0], [3, 0, -4], [3, 0, -4]])
        bounds, ends = torch.tensor([-1.0, -0.5, 0, 0.5, 1, 3, 6, 7]), torch.tensor([0.0, 1, 0.5, 1e-20, 0.999])
        table, target = torch.linspace(-1, 1, 12).reshape(4, 3), torch.tensor([1.0, 0, 0.25, 1, 0])
        ids, mask = torch.tensor([[0, 2], [2, 3]]), torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()
        other, sign = torch.tensor([0.0, 1, 0, 0.5, 1, 4, 6, 7]), torch.tensor([1.0, -1, 1, -1, 1, 1, 1, -1])
        y = torch.tensor([0.5, 2, 0, 0.5, 3, 2, 1, 4])
        cases = {zeros: [torch.norm, linalg.norm, linalg.matrix_norm, torch.std, lambda x: F.normalize(x, dim=1)],
                 rows: [*(lambda x, p=p: linalg.vector_norm(x, p, dim=1) for p in (0.5, 1.5, 2, 3)),
                        lambda x: x.std(1), lambda x: torch.std_mean(x, 0)[0], torch.pdist,
                        *(lambda x, p=p: torch.cdist(x, x, p) for p in (1.5, 2.0, 3.0)),
                        lambda x: torch.cdist(x, x, compute_mode="use_mm_for_euclid_dist"),
                        *(lambda x, p=p: torch.dist(x, rows, p) for p in (2, 3)),
                        lambda x: F.cosine_similarity(x, rows.flip(0)),
                        lambda x: F.scaled_dot_product_attention(x, rows, rows, mask)],
                 bounds: [lambda x: x.clamp(-0.5, 1), F.hardtanh, F.relu6, lambda x: x.clamp_min(0), lambda x: x.clamp_max(1),
                          lambda x: x.clamp(0, 6), lambda x: x.clamp(min=-0.5), lambda x: F.margin_ranking_loss(x, other, sign),
                          lambda x: F.hinge_embedding_loss(x, sign), lambda x: torch.xlogy(x, y),
                          lambda x: torch.xlogy(x[2], torch.tensor([0.0, -1, 2])),
                          lambda x: torch.special.xlog1py(x, y - 1), lambda x: torch.logaddexp(x, other),
                          lambda x: torch.logaddexp2(x, other), lambda x: torch.lerp(x, other, y),
                          F.hardshrink, F.softshrink, lambda x: F.threshold(x, 0.5, -2.0)],
                 ends: [lambda x: F.binary_cross_entropy(x, target, reduction="none")],
                 table: [lambda w: F.embedding(ids, w, padding_idx=2), lambda w: F.embedding(ids, w, padding_idx=-1),
                         lambda w: F.embedding(ids, w)]}
        for x, functions in cases.items():
            for number, function in enumerate(functions):
                with self.subTest(number=number, x=x):
                    self.check(function, x, tolerance=2e-6)
                    made, want = self.gradient(function, x)
                    self.assertTrue(np.isfinite(want).all())
                    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)
        classes, logits = torch.tensor([-100, 1]), torch.tensor([[0.0, -math.inf], [1, 2]])
        self.check(lambda x: F.cross_entropy(x, classes, label_smoothing=0.1), logits, tolerance=1e-6)

    def gradient(self, function, x):
        """The gradient of the sum of an imported function's results, and PyTorch's."""
        import torch

        class Module(torch.nn.Module):
            def forward(self, x):
                return function(x).sum()

        x = x.clone().requires_grad_()
        Module()(x).backward()
        program = tenon.torch.load(torch.export.export(Module(), (x.detach(),)))
        return tenon.grad(lambda x: tenon.call(program, x))(x.detach().numpy()).numpy(), x.grad.numpy()

    def test_gradients_pass_views_and_copies(self):
        import torch
        x = torch.arange(9.0).reshape(3, 3)
        for same in (lambda x: x.t().contiguous().t(), lambda x: x.clone(), lambda x: x.double().float(), lambda x: +x,
                     torch.ops.aten.alias, lambda x: x.expand(3, 3), lambda x: torch.zeros(3, 3).copy_(x),
                     lambda x: x.reshape(9).view(3, 3), lambda x: x.clone().mul_(1.0), lambda x: x.roll(1, 0).roll(-1, 0),
                     lambda x: torch.nn.functional.dropout(x, 0.5, False), lambda x: x.as_strided((3, 3), (3, 1))):
            made, want = self.gradient(lambda x: x + 3 * same(x), x)
            np.testing.assert_array_equal(made, want)

    def test_gradients_of_large_numbers(self):
        import torch
        from torch import nn
        x = torch.tensor([-2e4, -200, -20, -1, 0, 1, 20, 89, 200, 2e4])
        for function in (nn.ELU(), nn.CELU(0.6), nn.CELU(-0.6), nn.SELU(), nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(2, 3),
                         lambda x: torch.ops.aten.elu(x, 0.7, 1.1, 0.6)):
            np.testing.assert_allclose(*self.gradient(function, x), rtol=1e-4, atol=1e-6, err_msg=repr(function))

    def test_slices_from_the_end_by_the_size_of_another_axis(self):
        import torch

        class Tail(torch.nn.Module):
            def forward(self, x, y):
                z = x @ y
                return z[:, -y.shape[1]:] + z

        auto = torch.export.Dim.AUTO
        exported = torch.export.export(Tail(), (torch.randn(3, 9), torch.randn(9, 6)),
                                       dynamic_shapes=({1: auto}, {0: auto, 1: auto}))
        session = tenon.Session(tenon.torch.load(exported))
        for inner, columns in ((9, 6), (3, 5)):
            x, y = torch.randn(3, inner), torch.randn(inner, columns)
            np.testing.assert_allclose(session.forward(x.numpy(), y.numpy())[0].numpy(), Tail()(x, y), rtol=1e-4,
                                       atol=1e-5)

    def test_images_by_scales_that_are_rounded(self):
        import torch
        import torch.nn.functional as F

        class Scaled(torch.nn.Module):
            def forward(self, x):
                return [F.interpolate(x, scale_factor=scale, mode=mode, recompute_scale_factor=again)
                        for scale in (0.6, 1.1, 1.4, 2.2, 2.3, 3.3) for mode in ("nearest", "nearest-exact", "linear")
                        for again in (None, True)]

        for count in (5, 7, 24, 40):
            x = torch.arange(float(count)).reshape(1, 1, count)
            model = tenon.torch.Model(torch.export.export(Scaled(), (x,)))
            for one, want in zip(model(x.numpy()), Scaled()(x), strict=True):
                np.testing.assert_allclose(one, want.numpy(), rtol=1e-5, atol=1e-5)

    def test_images_that_are_smoothed_with_their_corners_aligned(self):
        import torch
        import torch.nn.functional as F
        for mode in ("bilinear", "bicubic"):
            for sizes in ((7, 4), (3, 9), (1, 3), (6, 2)):
                self.check(lambda x: F.interpolate(x, sizes, mode=mode, align_corners=True, antialias=True),
                           torch.arange(1.0, 61).reshape(2, 1, 6, 5).sqrt(), tolerance=1e-5)

    def test_layers_with_projections_places_and_reflections(self):
        import torch
        from torch import nn

        class Unpooled(nn.Module):
            def forward(self, x):
                best, places = nn.functional.max_pool2d(x, 2, return_indices=True)
                return nn.functional.max_unpool2d(best, places, 2, output_size=x.shape[2:])

        class Matrices(nn.Module):
            def forward(self, x):
                return torch.matrix_exp(5 * (x - x.mT)), x.clone().fill_diagonal_(7), torch.fft.hfft(x + 0j, 9, norm="ortho")

        torch.manual_seed(1)
        for module, x in ((nn.LSTM(5, 8, 2, bidirectional=True, proj_size=3), torch.randn(6, 2, 5)),
                          (nn.LSTM(5, 8, bias=False, proj_size=3, batch_first=True), torch.randn(2, 3, 5)),
                          (nn.AdaptiveMaxPool2d((3, 2), return_indices=True), torch.randn(2, 3, 7, 9)),
                          (nn.AdaptiveMaxPool1d(5, return_indices=True), torch.randn(2, 12).round()),
                          (Unpooled(), torch.randn(2, 3, 9, 10)), (Matrices(), torch.randn(6, 6))):
            want = torch.utils._pytree.tree_leaves(module(x))
            got = torch.utils._pytree.tree_leaves(tenon.torch.Model(torch.export.export(module.eval(), (x,)))(x.numpy()))
            for one, other in zip(got, want, strict=True):
                self.assertEqual((one.dtype, one.shape), (other.detach().numpy().dtype, tuple(other.shape)))
                np.testing.assert_allclose(one, other.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=repr(module))

    def check(self, function, *arrays, tolerance=0):
        import torch

        class Module(torch.nn.Module):
            def forward(self, *arguments):
                return function(*arguments)

        want = torch.utils._pytree.tree_leaves(function(*arrays))
        made = tenon.torch.Model(torch.export.export(Module(), arrays))(*(one.numpy() for one in arrays))
        for one, other in zip(check.leaves(made), want, strict=True):
            self.assertEqual((one.dtype, one.shape), (other.numpy().dtype, tuple(other.shape)))
            np.testing.assert_allclose(one, other.numpy(), rtol=tolerance)

    def test_nans_halves_and_values_without_axes(self):
        import torch
        import torch.nn.functional as F
        nan, inf = math.nan, math.inf
        x = torch.tensor([nan, -inf, -1, -0.5, 0, 0.5, 1, inf])
        for function in (F.hardshrink, F.softshrink, lambda x: F.threshold(x, 0.5, -2.0), lambda x: x.clamp(-0.5, 1),
                         lambda x: x.clamp(0, 6), lambda x: x.norm(), lambda x: x[:2].std(),
                         *(lambda x, p=p: torch.linalg.vector_norm(x, p) for p in (-1, 0.5, 3)),
                         lambda x: torch.xlogy(x[:, None], x), lambda x: torch.logaddexp(x[:, None], x)):
            self.check(function, x, tolerance=1e-6)
        large = torch.tensor([1e8, 3.0])
        self.check(lambda a, b: [torch.lerp(a, b, one) for one in (0.25, 1.0, b)], large, torch.ones(2))
        for dtype in (torch.float16, torch.float64):
            x = torch.linspace(-3, 3, 48).sin().reshape(4, 12).to(dtype)
            self.check(lambda x: [torch.lerp(x, x.flip(0), 0.3), F.glu(x)], x, tolerance=1e-7)
            self.check(lambda x: torch.addmm(x[:, :4], x, x.t(), beta=0.3, alpha=0.7), x, tolerance=1e-3)
        self.check(lambda x: [x.sum(-1), x.mean(-1), x.amax(-1), *x.max(-1), x.argmax(-1), *x.sort(-1), *x.topk(1), x.squeeze(-1),
                              x.softmax(-1), x.cumsum(-1), x.std(-1, correction=0), x.logsumexp(-1), x.any(-1)],
                   torch.tensor(2.0))

    def test_losses_of_weighted_classes(self):
        import torch
        import torch.nn.functional as F
        x, y, w = torch.linspace(-2, 3, 15).sin().reshape(3, 5), torch.tensor([0, 3, 2]), torch.tensor([1, 2, 0.5, 3, 1])
        planes = torch.linspace(-2, 5, 30).cos().reshape(3, 5, 2)
        places = torch.tensor([[0, 1], [2, -100], [4, 3]])
        for reduction in ("none", "mean", "sum"):
            self.check(lambda x, y: F.cross_entropy(x, y, w, reduction=reduction, label_smoothing=0.1, ignore_index=2), x, y,
                       tolerance=1e-5)
            self.check(lambda x, y: F.cross_entropy(x, y, w, reduction=reduction, label_smoothing=0.3), planes, places,
                       tolerance=1e-5)
            self.check(lambda x, y: [F.multi_margin_loss(x, y, reduction=reduction), F.multi_margin_loss(x[0], y[0]),
                                     F.multi_margin_loss(x, y, 2, 0.7, w, reduction=reduction)], x, y, tolerance=1e-5)

    def test_norms_of_matrices_and_pools_with_divisors(self):
        import torch
        import torch.nn.functional as F
        x = torch.linspace(-2, 3, 15).sin().reshape(3, 5) + torch.eye(3, 5)
        self.check(lambda x: [torch.linalg.norm(x, 2), torch.linalg.norm(x, -2), torch.linalg.norm(x, 1, (1, 0)),
                              torch.linalg.norm(x, 3, 1), torch.linalg.norm(x[0], float("inf")), torch.linalg.norm(x, "nuc"),
                              torch.linalg.norm(x[0], 0.5)], x, tolerance=1e-5)
        for padding in (0, 1):
            self.check(lambda x: [F.avg_pool2d(x[None], size, stride, padding, True, False, divisor)
                                  for size, stride in ((2, 2), (3, 2), ((2, 3), (3, 2))) for divisor in (3, -2, None)], x,
                       tolerance=1e-5)
        cube = torch.linspace(-2, 3, 90).sin().reshape(2, 3, 3, 5)
        self.check(lambda x: F.avg_pool3d(x, 2, 2, 0, True, True, 5), cube, tolerance=1e-5)

    def test_decomposed_graphs_are_not_to_be_decomposed(self):
        import torch

        class Airy(torch.nn.Module):
            def forward(self, x):
                return torch.special.airy_ai(x)

        exported = torch.export.export(Airy(), (torch.ones(2),))
        for one, says in ((exported, True), (exported.run_decompositions(), False)):
            with self.assertRaisesRegex(tenon.UnsupportedError, "this op is not supported") as raised:
                tenon.torch.load(one)
            self.assertEqual("run_decompositions" in str(raised.exception), says)

    def test_numbers_beside_halves(self):
        import torch
        x = torch.tensor([0, 1, 3, 0.1, 7, 60000]).half()
        self.check(lambda x: [(1 - (x > 2).half()) * -1e9, x / 1e5, x * 1e-6, 1e5 / x, x // 1e-5, x * torch.tensor(1e-6),
                              x + 0.1001, x - 0.1001, 0.1001 - x, torch.div(x, 0.3, rounding_mode="trunc")], x)
        self.check(lambda x: [torch.addcmul(x, x, x, value=1e-6), torch.round(x, decimals=2), torch.sinc(x),
                              torch.logaddexp(x, x - 1), torch.nn.functional.softplus(x, beta=0.37)], x, tolerance=1e-3)

    def test_squares_of_halves(self):
        import torch
        from torch.nn import functional
        x = torch.tensor([[300, -20, 1000, 3], [1e-4, 2e-4, 0, 5e-4], [2e4, 3e4, -3e4, 0]]).half()
        self.check(lambda x: [torch.linalg.vector_norm(x, dim=1), torch.linalg.norm(x[0]), torch.norm(x, dim=1),
                              torch.linalg.vector_norm(x, 3, dim=1), functional.normalize(x, dim=1), x.std(1),
                              *torch.var_mean(x[:2], 1), functional.cosine_similarity(x, x * 0.5 + 1),
                              functional.pairwise_distance(x, -0.5 * x), torch.dist(x, 0.5 * x)], x, tolerance=1e-3)

    def test_nans_powers_and_empty_axes(self):
        import torch
        nan = math.nan
        x = torch.tensor([[1, nan], [-2, 0.5]])
        edges = torch.tensor([[0.0, 1, 2], [-3, -2, 5]])
        self.check(lambda x: [torch.sign(x), torch.sgn(x), torch.sign(x.half())], x)
        for right in (False, True):
            self.check(lambda x: torch.searchsorted(edges, x, right=right), x)
        for rows in ([[1, nan, 2, 3]], [[nan, nan, 3, nan]], [[nan, 4, 1, 2]]):
            self.check(lambda x: [torch.nn.functional.max_pool1d(x, 2, return_indices=indices) for indices in (True, False)],
                       torch.tensor(rows))
        self.check(lambda x: [torch.any(x, dim=()), torch.all(x, dim=(), keepdim=True), torch.squeeze(x[None], dim=()),
                              torch.sum(x, dim=()), torch.var(x, dim=()), torch.count_nonzero(x, dim=())],
                   torch.tensor([[1.0, 0], [2, 3]]), tolerance=1e-6)
        powers = torch.tensor([float(f"1e{one}") for one in range(-22, 23)] + [0, math.inf, nan, -1], dtype=torch.float64)
        self.check(lambda x: [torch.log10(x).floor(), torch.log10(x.float()).floor()], powers)
        self.check(torch.log10, torch.tensor([1 - 2.0**-24, 1, 1 + 2.0**-23]), tolerance=1e-7)

    def test_ops_whose_results_share_memory_are_known(self):
        import torch
        known = node.VIEWS | node.VIEWS_IF_DENSE | node.SAME_IF_EQUAL | node.COPIES_OR_VIEWS
        for name in node.HANDLERS:
            domain, *parts = name.split(".")
            packet = getattr(torch.ops.aten, parts[0], None) if domain == "aten" and len(parts) == 2 else None
            if packet is None or parts[1] not in packet.overloads():
                continue
            results = [one.alias_info for one in getattr(packet, parts[1])._schema.returns]
            if any(one is not None and not one.is_write for one in results):
                self.assertIn(name, known)


if __name__ == "__main__":
    unittest.main()
