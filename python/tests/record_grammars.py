#!/usr/bin/env python3
"""Records which tokens llama.cpp's grammars allow along random texts, for tests without llama.cpp.

Needs `llama-cpp-python`. The file has, for each grammar, the tokens of a text and for each position before one of
them, and behind the last, the CRC-32 of the ids that are allowed there, as 4 bytes each from the lowest on, and
whether a token that ends the text is allowed. The ids are without those tokens, without control tokens, whose
spellings llama.cpp takes for text, and without tokens that begin with NUL, which it takes for none.

    record_grammars.py MODEL.gguf > tests/text/data/grammar_tokens.json
"""

import ctypes
import json
import random
import sys
import zlib

import llama_cpp
import numpy as np

GRAMMARS = [
    'root ::= "yes" | "no" | "maybe " [a-z]+',
    'root ::= item ("," " " item)*\nitem ::= [A-Za-z]{2,8} | [0-9]+ ("." [0-9]{1,3})?',
    r'''root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}''',
    r'''root ::= (expr "=" term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*''',
    'root ::= [ぁ-ゟァ-ヿ、-〾一-鿿]+ ("é" | "ü"? [\\u0400-\\u04FF]{2,} .)',
    r'root ::= "```" [a-z]* "\n" ([^`] | "`" [^`] | "``" [^`])* "```"',
    'root ::= [^a-zA-Z]{3} . .? "é"? | ("ab" | "abc"){2,4} "c"',
    '''root ::= move (" " move){1,4}
move ::= ("O-O" "-O"? | [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8] | [a-h] [1-8] ("=" [NBKQR])?) [+#]?''',
]


def main():
    generator = random.Random(7)
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(sys.argv[1].encode(), parameters)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    count = llama_cpp.llama_vocab_n_tokens(vocabulary)
    text = ctypes.create_string_buffer(256)
    kept, ends = np.zeros(count, bool), np.zeros(count, bool)
    for token in range(count):
        ends[token] = llama_cpp.llama_vocab_is_eog(vocabulary, token)
        length = llama_cpp.llama_token_to_piece(vocabulary, token, text, len(text), 0, True)
        kept[token] = (not ends[token] and not llama_cpp.llama_vocab_is_control(vocabulary, token) and length > 0 and
                       text.raw[0] != 0)
    data = (llama_cpp.llama_token_data * count)()
    view = np.frombuffer(data, dtype=[("id", "i4"), ("logit", "f4"), ("p", "f4")])
    recorded = []
    for grammar in GRAMMARS:
        sampler = llama_cpp.llama_sampler_init_grammar(vocabulary, grammar.encode(), b"root")
        tokens, checks = [], []
        for _ in range(25):
            view["id"], view["logit"] = np.arange(count), 0
            tokens_of = llama_cpp.llama_token_data_array(data=data, size=count, selected=-1, sorted=False)
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(tokens_of))
            allowed = np.zeros(count, bool)
            allowed[view["id"]] = view["logit"] == 0
            choices = np.nonzero(allowed & kept)[0]
            checks.append([zlib.crc32(choices.astype("<i4").tobytes()), bool((allowed & ends).any())])
            if not len(choices):
                break
            tokens.append(int(generator.choice(list(choices))))
            llama_cpp.llama_sampler_accept(sampler, tokens[-1])
        recorded.append({"grammar": grammar, "tokens": tokens[:len(checks) - 1], "allowed": checks})
    lines = ",\n".join(json.dumps(text, ensure_ascii=False) for text in recorded)
    print(f'{{"llama_cpp_python": "{llama_cpp.__version__}", "tokens": {count}, "texts": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
