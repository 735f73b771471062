"""`tenon chat` on a terminal and in a pipe: commands, a context that fills up, Ctrl-C, escapes."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import model_files
from commands_test import ENDLESS, Folder
from harness import DATA, LLAMA, MALFORMED, SOURCE, WRONG_CALL
from image_test import PICTURE, VISION


class ChatFolder(Folder):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "chat.gguf"
        model_files.add_text(LLAMA, self.model, "tokenizer.chat_template", model_files.CHATML)

    def chat(self, text, *arguments, **more):
        return self.json("chat", self.model, *arguments, stdin=text.encode(), **more)


class Commands(ChatFolder):
    def test_save_writes_the_messages(self):
        path = self.folder / "saved.json"
        chat = self.chat(f"/system be brief\nhand\n/save {path}\n/exit\nnever read\n", "-n", 3)
        (turn,) = chat["turns"]
        saved = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(saved["messages"], [
            {"role": "system", "content": "be brief"}, {"role": "user", "content": "hand"},
            {"role": "assistant", "content": turn["assistant"]},
        ])

    def test_clear_forgets(self):
        chat = self.chat("hand\n/clear\nhand\n", "-n", 4, "--temp", 0)
        first, second = chat["turns"]
        self.assertEqual(first["assistant"], second["assistant"])

    def test_a_system_message_is_as_the_option(self):
        by_option = self.chat("a\n", "-n", 1, "--system", "in the end")["turns"]
        by_command = self.chat("/system in the end\na\n", "-n", 1)["turns"]
        self.assertEqual(by_option[0]["prompt_tokens"], by_command[0]["prompt_tokens"])

    def test_what_is_no_command(self):
        done = self.tenon("chat", self.model, "-n", 1, stdin=b"/hlp\n/save\n/help\n")
        self.assertEqual(done.stdout, b"")
        self.assertIn(b"no command /hlp; did you mean '/help'?", done.stderr)
        self.assertIn(b"needs the name of a file", done.stderr)
        self.assertIn(b"/system TEXT", done.stderr)
        self.assertEqual(self.chat("//help\n", "-n", 1)["turns"][0]["user"], "/help")

    def test_messages_of_several_lines(self):
        turns = self.chat('one\\\ntwo\n"""\nthree\n\nfour\n"""\n"""five"""\n', "-n", 1)["turns"]
        users = [turn["user"] for turn in turns]
        self.assertEqual(users[:2], ["one\ntwo", "three\n\nfour"])
        self.assertEqual(users[2], "five")


class Pictures(ChatFolder):
    """A chat with images, which are read once."""

    FAMILIES = (("qwen2vl", "qwen2vl", 15), ("gemma3", "gemma3", 4), ("llama", "idefics3", 28))

    def model_of(self, name):
        model = self.folder / f"{name}.gguf"
        model_files.add_text(DATA / f"tiny_{name}.gguf", model, "tokenizer.chat_template", model_files.CHATML)
        return model

    def test_a_picture_is_read_once(self):
        for name, projector, embeddings in self.FAMILIES:
            model, mmproj = self.model_of(name), VISION / f"{projector}.gguf"

            def chat(text, model=model, mmproj=mmproj):
                return self.json("chat", model, "--mmproj", mmproj, "-n", 4, "--temp", 0, stdin=text.encode())["turns"]

            turns = chat(f"/image {PICTURE}\nwhat\nand\n/clear\nwhat\n/clear\n/image {PICTURE}\nwhat\n")
            first, second, plain, again = turns
            self.assertEqual(first["user"], "what")
            self.assertGreater(first["prompt_tokens"], plain["prompt_tokens"] + embeddings)
            self.assertLess(second["prompt_tokens"], first["prompt_tokens"] - embeddings)
            # What stands before the image is held still, not so the image: it may be another one.
            self.assertGreaterEqual(again["prompt_tokens"], embeddings)
            self.assertEqual(again["assistant"], first["assistant"])
            alone = self.json("generate", model, "--mmproj", mmproj, "--image", PICTURE, "--chat", "--prompt", "what",
                              "-n", 4, "--temp", 0)
            self.assertEqual(alone["text"], first["assistant"])

    def test_a_turn_behind_a_picture_answers_as_if_all_was_read(self):
        compared = 0
        for name, projector in (("gemma3", "gemma3"), ("llama", "idefics3")):
            model, options = self.model_of(name), ("--mmproj", VISION / f"{projector}.gguf", "-n", 3, "--temp", 0)
            for word in ("what", "x", "hand"):
                text = f"/image {PICTURE}\n{word}\nand\n"
                first, second = self.json("chat", model, *options, stdin=text.encode())["turns"]
                if not (first["assistant"].isascii() and first["assistant"].isprintable()):
                    continue  # its bytes are not those that a prompt can have
                compared += 1
                whole = (f"<|im_start|>user\n<__media__>{word}<|im_end|>\n<|im_start|>assistant\n{first['assistant']}<|im_end|>\n"
                         "<|im_start|>user\nand<|im_end|>\n<|im_start|>assistant\n")
                alone = self.json("generate", model, *options, "--image", PICTURE, "--prompt", whole)
                self.assertEqual(alone["text"], second["assistant"])
                self.assertGreater(alone["prompt_tokens"], 2 * second["prompt_tokens"])
        self.assertGreater(compared, 0)

    def test_turns_with_pictures_leave_a_full_context(self):
        model, mmproj = self.model_of("qwen2vl"), VISION / "qwen2vl.gguf"
        text = f"/image {PICTURE}\nwhat\n" * 6
        turns = self.json("chat", model, "--mmproj", mmproj, "-n", 4, "--ctx", 160, stdin=text.encode())["turns"]
        self.assertEqual([("error" in turn) for turn in turns], [False] * 6)
        self.assertGreater(turns[-1]["turns_left_out"], 1)

    def test_markers_say_where_pictures_stand(self):
        model, mmproj = self.model_of("qwen2vl"), VISION / "qwen2vl.gguf"
        saved = self.folder / "saved.json"
        text = (f"/image {PICTURE}\nsee <__media__> here\n<__media__>?\n/image {PICTURE}\n/image\nnone\n"
                f"/image {PICTURE}\n<__media__> <__media__>\n/image {PICTURE}\n<__media__> <__media__>\n/save {saved}\n")
        turns = self.json("chat", model, "--mmproj", mmproj, "-n", 2, stdin=text.encode())["turns"]
        self.assertEqual([turn.get("error") for turn in turns],
                         [None, "0 images for 1 markers", None, "1 images for 2 markers", None])
        self.assertEqual(json.loads(saved.read_text(encoding="utf-8"))["images"], [str(PICTURE)] * 3)

    def test_what_is_refused(self):
        model, mmproj = self.model_of("qwen2vl"), VISION / "qwen2vl.gguf"
        done = self.tenon("chat", model, "-n", 1, stdin=f"/image {PICTURE}\n".encode())
        self.assertIn(b"without --mmproj", done.stderr)
        done = self.tenon("chat", model, "--mmproj", mmproj, "-n", 1, stdin=f"/image missing.ppm\n/image {PICTURE}\n".encode())
        self.assertIn(b"missing.ppm", done.stderr)
        self.assertIn(b"23 x 37 pixels, 15 embeddings", done.stderr)
        wide = self.folder / "wide.ppm"
        wide.write_bytes(b"P6 201 1 255\n" + bytes(603))
        done = self.tenon("chat", model, "--mmproj", mmproj, "-n", 1, stdin=f"/image {wide}\n".encode())
        self.assertIn(b"201 x 1 pixels", done.stderr)
        self.refused(WRONG_CALL, "BadArgument", "chat", model, "--mmproj", mmproj, "--raw", says="--raw")
        self.refused(MALFORMED, "Incompatible", "chat", model, "--mmproj", VISION / "gemma3.gguf", says="positions of images")


class PromptCache(ChatFolder):
    def test_the_beginning_of_a_chat_is_read_once(self):
        cache = self.folder / "prompt"
        options = ("--prompt-cache", cache, "-n", 4, "--temp", 0)
        plain = self.chat("hand\nabc\n", "--system", "in the end", *options[2:])
        self.assertNotIn("cached_tokens", plain)
        for name in ("llama", "mamba"):
            model = self.folder / f"{name}.gguf"
            model_files.add_text(DATA / f"tiny_{name}.gguf", model, "tokenizer.chat_template", model_files.CHATML)
            cache.unlink(missing_ok=True)

            def chat(text, system="in the end", *more):
                return self.json("chat", model, "--system", system, *options, *more, stdin=text.encode())

            first = chat("hand\nabc\n")
            opening = first["opening_tokens"]
            self.assertGreater(opening, 10)
            self.assertEqual(first["cached_tokens"], 0)
            written = cache.read_bytes()
            for message in ("hand\nabc\n", "other\n"):
                again = chat(message)
                self.assertEqual(again["cached_tokens"], opening)
                self.assertEqual(cache.read_bytes(), written)
            self.assertEqual([turn["tokens"] for turn in chat("hand\nabc\n")["turns"]],
                             [turn["tokens"] for turn in first["turns"]])
            # The first turn reads what comes behind the beginning.
            self.assertLess(first["turns"][0]["prompt_tokens"], plain["turns"][0]["prompt_tokens"] - opening + 1)
            other = chat("hand\n", "at last", "--prompt-cache-ro")
            self.assertLess(other["cached_tokens"], other["opening_tokens"])
            self.assertEqual(cache.read_bytes(), written)
            done = self.tenon("chat", model, "--system", "in the end", *options, stdin=b"hand\n")
            self.assertIn(b"the chat's beginning: %d tokens in the cache, 0 read" % opening, done.stderr)

    def test_what_it_does_not_go_with(self):
        cache = self.folder / "prompt"
        self.refused(WRONG_CALL, "BadArgument", "chat", self.model, "--prompt-cache", cache, "--raw", says="excludes")
        self.refused(WRONG_CALL, "BadArgument", "chat", self.model, "--prompt-cache-ro", says="requires")
        self.refused(WRONG_CALL, "BadArgument", "chat", self.model, "--prompt-cache-all")
        cache.write_bytes(LLAMA.read_bytes())
        self.refused(MALFORMED, "BadMagic", "chat", self.model, "--prompt-cache", cache, says="no saved conversation")


class FullContext(ChatFolder):
    def test_the_oldest_turns_are_left_out_and_the_system_message_stays(self):
        chat = self.chat("hand\n" * 12, "-n", 4, "--ctx", 160, "--system", "in the end")
        self.assertEqual(len(chat["turns"]), 12)
        self.assertEqual(chat["turns"][0]["turns_left_out"], 0)
        self.assertGreater(chat["turns"][-1]["turns_left_out"], 0)
        for turn in chat["turns"]:
            self.assertIn(turn["stopped"], ("length", "end token"))
        # As a chat that begins with the turns that are left.
        done = self.tenon("chat", self.model, "-n", 4, "--ctx", 160, stdin=b"hand\n" * 12)
        self.assertIn(b"turns are left out from now on", done.stderr)

    def test_a_message_that_does_not_fit_is_refused_and_the_chat_goes_on(self):
        chat = self.chat("x" * 400 + "\nhand\n", "-n", 2, "--ctx", 100)
        refused, answered = chat["turns"]
        self.assertIn("the context holds 100: shorten it, or start with a larger --ctx", refused["error"])
        self.assertLessEqual(len(answered["tokens"]), 2)
        done = self.tenon("chat", self.model, "-n", 2, "--ctx", 100, stdin=b"x" * 400)
        self.assertIn(b"shorten it", done.stderr)

    def test_a_message_that_the_template_refuses_does_not_end_the_chat(self):
        template = ("{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('not this') }}{% endif %}"
                    "{{ m.content }}{% endfor %}")
        asked = "hand\nbad\nand\n", "-n", 2, "--chat-template", template
        turns = self.chat(*asked)["turns"]
        self.assertEqual([turn["user"] for turn in turns], ["hand", "bad", "and"])
        self.assertIn("not this", turns[1]["error"])
        self.assertEqual([turns[0]["assistant"], turns[2]["assistant"]],
                         [turn["assistant"] for turn in self.chat("hand\nand\n", *asked[1:])["turns"]])

    def test_plain_text_goes_on_for_ever(self):
        turns = self.chat("hand hand hand\n" * 12, "--raw", "-n", 8, "--ctx", 64)["turns"]
        self.assertEqual({turn["stopped"] for turn in turns} - {"length", "end token"}, set())


class Terminal(ChatFolder):
    def start(self, *arguments):
        self.process, self.master = None, None
        pid, self.master = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(self.program, [self.program, "chat", str(self.model), *map(str, arguments)])
        self.pid, self.seen = pid, b""
        self.addCleanup(os.close, self.master)

    def wait_for(self, pattern, seconds=60):
        """Reads on until what came since the last call matches."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.seen)
            if found:
                before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
                return before
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            try:
                chunk = os.read(self.master, 65536) if ready else b""
            except OSError:
                chunk = b""
            self.assertTrue(chunk, f"no {pattern!r} in {self.seen!r}")
            self.seen += chunk

    def wait_for_prompt(self):
        """The editor shows its prompt just before it takes over the terminal."""
        self.wait_for(rb"> ")
        end = time.monotonic() + 2  # a build without libedit never takes it over
        while termios.tcgetattr(self.master)[3] & termios.ICANON and time.monotonic() < end:
            time.sleep(0.005)

    def type(self, text):
        os.write(self.master, text.encode())

    def ended(self):
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def test_ctrl_d_ends_it(self):
        self.start("-n", 3)
        self.wait_for_prompt()
        self.type("hand\r")
        self.wait_for(rb"tokens/s[^]]*\]")
        self.wait_for_prompt()
        self.type("\x04")
        self.assertEqual(self.ended(), 0)

    def test_ctrl_c_ends_an_answer_and_then_the_program(self):
        self.start(*ENDLESS[2:])
        self.wait_for_prompt()
        self.type("hand\r")
        self.wait_for(rb"hand\r\n.")  # the answer has begun
        self.type("\x03")
        self.wait_for(rb"; cancelled\]")
        self.wait_for_prompt()
        self.type("/help\r")
        self.wait_for(rb"/exit")
        self.wait_for_prompt()
        self.type("\x03")
        self.assertIn(self.ended(), (0, -signal.SIGINT))

    def test_lines_are_edited_and_brought_back(self):
        if b"libedit" not in subprocess.run(["ldd", self.program], capture_output=True).stdout:
            self.skipTest("built without libedit")
        path = self.folder / "saved.json"
        self.start("-n", 1)
        self.wait_for_prompt()
        self.type("hxxnd\x1b[D\x1b[D\x7f\x7fa\r")  # two to the left, two deleted
        self.wait_for(rb"tokens/s[^]]*\]")
        self.wait_for_prompt()
        self.type("\x1b[A\r")  # the line before
        self.wait_for(rb"tokens/s[^]]*\]")
        self.wait_for_prompt()
        self.type("\u03a9\x7f\u00fc\r")  # characters of two bytes
        self.wait_for(rb"tokens/s[^]]*\]")
        self.wait_for_prompt()
        self.type(f"/save {path}\r")
        self.wait_for(rb"messages in")
        self.type("/exit\r")
        self.assertEqual(self.ended(), 0)
        messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
        self.assertEqual([m["content"] for m in messages if m["role"] == "user"], ["hand", "hand", "\u00fc"])

    def test_the_terminal_is_given_back(self):
        for last in ("\x03", "\x04", "/exit\r"):
            ours, theirs = os.openpty()
            before = termios.tcgetattr(theirs)
            running = subprocess.Popen([self.program, "chat", self.model], stdin=theirs, stdout=theirs,
                                       stderr=theirs, cwd=SOURCE, start_new_session=True)
            self.master, self.seen = ours, b""
            self.wait_for_prompt()
            self.type(last)
            running.wait(timeout=60)
            self.assertEqual(termios.tcgetattr(theirs)[:4], before[:4], repr(last))
            os.close(theirs)
            os.close(ours)

    def test_escapes_do_not_reach_a_terminal(self):
        (escape,) = self.json("tokenize", LLAMA, "\x1b")["ids"]
        self.start("-n", 3, "--logit-bias", f"{escape}=1e6")
        self.wait_for_prompt()
        self.type("hand\r")
        shown = self.wait_for(rb"tokens/s[^]]*\]")
        self.assertIn(b"\\x1b" * 3, shown)
        piped = self.tenon("chat", self.model, "-n", 3, "--logit-bias", f"{escape}=1e6", stdin=b"hand")
        self.assertEqual(piped.stdout, b"\x1b\x1b\x1b\n")
