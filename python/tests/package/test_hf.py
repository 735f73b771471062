"""Models of Hugging Face folders, against what transformers computed (python/tests/hf_oracle.py)."""

import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest

import numpy as np

import tenon

FOLDER = pathlib.Path(__file__).parent / "hf"
REAL = pathlib.Path(os.environ.get("TENON_TEST_MODELS", "no-models"))
MINILM = next((path for path in REAL.glob("*MiniLM*") if path.is_dir()), None)
KINDS = ("llama", "qwen2", "qwen3", "gemma3", "bert", "vit", "whisper")


def difference(got, want, tolerance=1e-4):
    """The largest difference, relative to the largest number; fails beyond the tolerance."""
    got = np.asarray(got)
    assert got.shape == want.shape, (got.shape, want.shape)
    found = float(abs(got - want).max() / max(1, abs(want).max()))
    assert found <= tolerance, f"{found} of {abs(want).max()}"
    return found


def check(folder):
    """Compares a folder's model with its expected.safetensors; returns the largest difference."""
    file = tenon.open(folder / "expected.safetensors")
    want = {name: np.array(file[name]) for name in file}
    model = tenon.hf.load(folder, exact=True)
    checks = {"Bert": check_encoder, "ViT": check_images, "Whisper": check_speech}
    return checks.get(type(model).__name__, check_decoder)(model, want)


def check_encoder(model, want):
    return max(difference(got, want[name]) for got, name in
               zip(model(want["ids"], want["types"], want["mask"]), ("hidden", "pooled")))


def check_images(model, want):
    for rows in (slice(0, 1), slice(0, 0)):
        difference(model(want["pixels"][rows])[0], want["logits"][rows]) if want["logits"][rows].size else None
    return difference(model(want["pixels"])[0], want["logits"])


def check_speech(model, want):
    ids, worst = want["ids"], 0.0
    seen = model.listen(want["spectrogram"])
    keys, values = model.caches(model.context)
    for begin, end in [(0, 3), *((i, i + 1) for i in range(3, ids.shape[1]))]:
        logits, keys, values = model(ids[:, begin:end], begin, keys.donate(), values.donate(), *seen)
        worst = max(worst, difference(logits, want["logits"][:, end - 1]))
    model.generation.values.pop("eos_token_id", None)
    assert model.generate(want["spectrogram"], ids[0, :3], ids.shape[1] - 3) == ids[0, 3:].tolist()
    return worst


def check_decoder(model, want):
    ids = want["ids"]
    rows, length = ids.shape
    # All at once; then a prompt of an odd length and tokens one by one, with the caches of what was before.
    program = model.program(batch=rows, cache="f32", every=True)
    assert tenon.parse(str(program)) == program
    session = model.session(program)
    caches = model.caches(length, rows, "f32")
    worst = difference(session.forward(ids, 0, *caches)[0], want["logits"])
    for begin, end in [(0, 5), *((i, i + 1) for i in range(5, length))]:
        logits, *caches = session.forward(ids[:, begin:end], begin, *(cache.donate() for cache in caches))
        worst = max(worst, difference(logits, want["logits"][:, begin:end]))
    # The first row is what a greedy choice continues.
    assert model.generate(ids[0, :7], length - 7) == ids[0, 7:].tolist()
    return worst


class Recorded(unittest.TestCase):
    def test_every_model(self):
        for kind in KINDS:
            with self.subTest(kind):
                check(FOLDER / kind)

    def test_text_is_short_and_changes_without_a_build(self):
        model = tenon.hf.load(FOLDER / "gemma3", exact=True)
        text = str(model.program(cache="f32"))
        self.assertLess(len(text.splitlines()), 400)

        def logits(text):
            session = model.session(tenon.parse(text))
            return session.forward([[3, 5, 7]], 0, *model.caches(8, cache="f32"))[0].numpy()

        before = logits(text)
        relu = text.replace("gelu_tanh(", "relu(")
        self.assertNotEqual(relu, text)
        self.assertGreater(abs(logits(relu) - before).max(), 1e-3)
        # One layer less: the loop over the first layers ends earlier.
        dropped = re.sub(r"repeat\((\w+), (\d+), ", lambda m: f"repeat({m[1]}, {int(m[2]) - 1}, ", text, count=1)
        self.assertGreater(abs(logits(dropped) - before).max(), 1e-3)

    def test_batches(self):
        model = tenon.hf.load(FOLDER / "bert", exact=True)
        ids = np.arange(21, dtype="i4").reshape(3, 7)
        together = model(ids)[0].numpy()
        alone = np.concatenate([model(ids[i : i + 1])[0].numpy() for i in range(3)])
        np.testing.assert_allclose(together, alone, atol=1e-5)
        padded = model(np.pad(ids, ((0, 0), (0, 4))), mask=np.pad(np.ones_like(ids), ((0, 0), (0, 4))))[0].numpy()
        np.testing.assert_allclose(padded[:, :7], together, atol=1e-5)

    @unittest.skipUnless(MINILM, "TENON_TEST_MODELS has no MiniLM")
    def test_a_real_encoder(self):
        encoder, model = tenon.SentenceEncoder.load(MINILM), tenon.hf.load(MINILM)
        for text in ("A cat sits on the mat.", "Stocks fell on Monday, as nobody had expected."):
            hidden = model([encoder.tokens(text)])[0].numpy()[0].mean(0)
            want = encoder.embed([text]).numpy()[0]
            np.testing.assert_allclose(hidden / np.linalg.norm(hidden), want, atol=2e-3)

    def test_runs_at_once(self):
        """forward() on arrays computes what the program does."""
        model = tenon.hf.load(FOLDER / "gemma3")
        ids = tenon.array(np.array([[3, 5, 7]], "i4"))
        at_once = model.forward(ids, tenon.array(np.int32(0)), *model.caches(8))[0].numpy()
        np.testing.assert_allclose(at_once, model(ids, 0, *model.caches(8))[0].numpy(), rtol=1e-4, atol=1e-4)
        model = tenon.hf.load(FOLDER / "whisper")
        sound = tenon.array(np.ones((1, model.mels, 2 * model.places), "f4"))
        for got, want in zip(model.encode(sound), model.listen(sound)):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)

    def test_generates(self):
        model = tenon.hf.load(FOLDER / "qwen2")
        tokens = model.generate([1, 2, 3], max_tokens=5)
        self.assertEqual(list(model.stream([1, 2, 3], max_tokens=5)), tokens)
        self.assertEqual(model.generate([1, 2, 3], max_tokens=0), [])
        self.assertEqual(model.generate([1, 2, 3], max_tokens=9, choose=lambda logits: 4), [4] * 9)
        model.generation.values["eos_token_id"] = [tokens[2]]
        self.assertEqual(model.generate([1, 2, 3], max_tokens=5), tokens[: tokens.index(tokens[2]) + 1])
        for prompt, more, code in (([], 4, "BadArgument"), ([1] * 60, 5, "OutOfRange"), ([1], -1, "OutOfRange"),
                                   ([10**6], 4, "OutOfRange")):
            with self.assertRaises(tenon.Error) as raised:
                model.generate(prompt, max_tokens=more)
            self.assertEqual(raised.exception.code, code)
        with self.assertRaisesRegex(tenon.Error, "max_tokens is -1, allowed: 0 and more"):
            model.generate([1], max_tokens=-1)
        with self.assertRaisesRegex(TypeError, "float"):
            model.generate([1.7], max_tokens=1)
        self.assertEqual(model.generate(np.array([1, 2, 3], "i8"), max_tokens=5), model.generate([1, 2, 3], max_tokens=5))

    def test_older_folders(self):
        """Settings as transformers 4 wrote them, and BERT's older names."""
        for kind in ("llama", "gemma3"):
            config = json.loads((FOLDER / kind / "config.json").read_text())
            rope = config.pop("rope_parameters")
            whole = rope.get("full_attention", rope)
            config["rope_theta"] = whole.pop("rope_theta")
            config["rope_scaling"] = {("type" if key == "rope_type" and kind == "gemma3" else key): value
                                      for key, value in whole.items()}
            config["torch_dtype"] = config.pop("dtype")
            if kind == "gemma3":
                config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
                config["sliding_window_pattern"] = config.pop("_sliding_window_pattern")
                del config["layer_types"]
                config["attn_logit_softcapping"] = 0.5  # which transformers does not use
            with tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary) / kind
                shutil.copytree(FOLDER / kind, folder)
                (folder / "config.json").write_text(json.dumps(config))
                check(folder)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / "bert"
            shutil.copytree(FOLDER / "bert", folder)
            file = tenon.open(FOLDER / "bert/model.safetensors")
            older = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
            tensors = {"bert." + re.sub(r"LayerNorm\.\w+$", lambda m: older[m[0]], name): np.array(file[name])
                       for name in file}
            tenon.save_safetensors(folder / "model.safetensors", tensors)
            check(folder)

    def test_text(self):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / "model"
            shutil.copytree(FOLDER / "qwen2", folder)
            words = {f"w{i}": i for i in range(40)}
            (folder / "tokenizer.json").write_text(json.dumps({
                "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None, "decoder": None,
                "pre_tokenizer": {"type": "WhitespaceSplit"},
                "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}))
            model = tenon.hf.load(folder)
            self.assertEqual(tenon.Tokenizer.from_file(folder / "tokenizer.json").encode("w2 w3"), [2, 3])
            tokens = model.generate([1, 2, 3], max_tokens=4)
            self.assertEqual(model.generate("w1 w2 w3", max_tokens=4), " ".join(f"w{token}" for token in tokens))
        with self.assertRaises(tenon.Error):
            tenon.hf.load(FOLDER / "qwen2").generate("w1")


class Wrong(unittest.TestCase):
    """Folders that do not fit together: an error names the file and the key."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "model"
        shutil.copytree(FOLDER / "qwen2", self.folder, ignore=shutil.ignore_patterns("expected*"))
        self.config = json.loads((self.folder / "config.json").read_text())

    def tensors(self):
        file = tenon.open(self.folder / "model.safetensors")
        return {name: np.array(file[name]) for name in file}

    def refused(self, code, *says):
        with self.assertRaises(tenon.Error) as raised:
            tenon.hf.load(self.folder)
        self.assertEqual(raised.exception.code, code, raised.exception)
        for word in says:
            self.assertIn(word, str(raised.exception))

    def write_config(self, text=None, **changes):
        (self.folder / "config.json").write_text(json.dumps({**self.config, **changes}) if text is None else text)

    def test_settings(self):
        for changes, code, key in (
                ({"hidden_size": None}, "BadKey", "hidden_size"),
                ({"hidden_size": "32"}, "BadType", "hidden_size"),
                ({"hidden_size": True}, "BadType", "hidden_size"),
                ({"hidden_size": -32}, "BadHyperparameter", "hidden_size"),
                ({"hidden_size": 10**30}, "BadHyperparameter", "hidden_size"),
                ({"num_hidden_layers": 10**9}, "BadHyperparameter", "num_hidden_layers"),
                ({"num_attention_heads": 3, "num_key_value_heads": 2}, "BadHyperparameter", "num_key_value_heads"),
                ({"rms_norm_eps": 10**400}, "BadHyperparameter", "rms_norm_eps"),
                ({"rms_norm_eps": float("nan")}, "BadHyperparameter", "rms_norm_eps"),
                ({"hidden_act": "xielu"}, "Unsupported", "hidden_act"),
                ({"rope_parameters": {"rope_type": "longrope"}}, "Unsupported", "longrope"),
                ({"rope_parameters": {"rope_type": "llama3"}}, "BadKey", "factor"),
                ({"rope_parameters": [1]}, "BadType", "rope_parameters"),
                ({"layer_types": ["full_attention"] * 9, "use_sliding_window": True}, "BadType", "layer_types"),
                ({"architectures": ["MambaForCausalLM"]}, "Unsupported", "MambaForCausalLM"),
                ({"architectures": "Qwen2ForCausalLM"}, "Unsupported", "config.json"),
                ({"architectures": [{}]}, "Unsupported", "config.json"),
                ({"architectures": None, "model_type": "mamba"}, "Unsupported", "mamba"),
                ({"architectures": None, "model_type": None}, "BadKey", "model_type")):
            with self.subTest(changes):
                self.write_config(**changes)
                self.refused(code, "config.json", key)

    def test_texts_that_are_no_settings(self):
        for text, code in (("", "Syntax"), ("{", "Syntax"), ("[]", "BadType"), ("[" * 10**6, "DepthLimit"),
                           ('{"a": 1' + "0" * 10**5 + "}", "Syntax"), (" " * (2**24 + 1), "LimitExceeded")):
            with self.subTest(text[:10]):
                self.write_config(text)
                self.refused(code, "config.json")
        (self.folder / "config.json").write_bytes(b'{"a": "\xff"}')
        self.refused("BadEncoding", "config.json")

    def test_files_that_are_not_there(self):
        (self.folder / "model.safetensors").unlink()
        self.refused("NotFound", "model")
        (self.folder / "config.json").unlink()
        self.refused("NotFound", "config.json")
        os.mkfifo(self.folder / "config.json")
        self.refused("NotFound", "config.json")
        shutil.rmtree(self.folder)
        self.refused("NotFound", "model")

    def test_weights(self):
        tensors, name = self.tensors(), "model.layers.0.self_attn.q_proj.weight"
        for wrong, code in ((None, "BadReference"), (tensors[name][:-1], "BadShape"),
                            (tensors[name].astype("i4"), "UnsupportedDType")):
            changed = {key: array for key, array in tensors.items() if key != name}
            if wrong is not None:
                changed[name] = wrong
            tenon.save_safetensors(self.folder / "model.safetensors", changed)
            self.refused(code, "model.safetensors", name)

    def test_weights_of_an_encoder(self):
        shutil.rmtree(self.folder)
        shutil.copytree(FOLDER / "whisper", self.folder, ignore=shutil.ignore_patterns("expected*"))
        tensors = self.tensors()
        del tensors["model.encoder.conv2.bias"]
        tenon.save_safetensors(self.folder / "model.safetensors", tensors)
        self.refused("BadReference", "model.safetensors", "model.encoder.conv2.bias")

    def test_index(self):
        tensors = self.tensors()
        (self.folder / "model.safetensors").unlink()
        names = sorted(tensors)
        parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        for file, of in parts.items():
            tenon.save_safetensors(self.folder / file, {name: tensors[name] for name in of})
        index = {name: file for file, of in parts.items() for name in of}

        def write(weight_map):
            path = self.folder / "model.safetensors.index.json"
            path.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

        write(index)
        model = tenon.hf.load(self.folder, exact=True)
        whole = tenon.hf.load(FOLDER / "qwen2", exact=True)
        self.assertEqual(model.generate([1, 2, 3], 5), whole.generate([1, 2, 3], 5))
        write({**index, names[0]: "../" + self.folder.name + "/a.safetensors"})
        self.refused("PathEscape", "index.json")
        write({**index, names[0]: "/etc/passwd"})
        self.refused("PathEscape", "index.json")
        write({**index, names[0]: "c.safetensors"})
        self.refused("MissingShard", "c.safetensors")
        write({**index, "lm_head.more": "a.safetensors"})
        self.refused("BadReference", "lm_head.more")
        # Links that lead out of the folder, as in a hub's cache: only where they are asked for.
        write(index)
        outside = self.folder.parent / "blob"
        (self.folder / "a.safetensors").rename(outside)
        (self.folder / "a.safetensors").symlink_to(outside)
        self.refused("PathEscape", "a.safetensors")
        tenon.hf.load(self.folder, follow_links=True)


if __name__ == "__main__":
    unittest.main()
