"""Strings that try tokenizers: prose of many scripts, code, emoji, random characters, broken UTF-8."""

import random
import unicodedata

PROSE = r"""
The quick brown fox jumps over the lazy dog, doesn't it? They'll say we've DON'T'D I'm you're he'd.
In 1984 there were 365 days; 3.14159 is near 22/7, and 1,000,000 beats 999999 by 0.0001%.
Größe, Übermaß und Straße: Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.
Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. L'été, « là-bas », où ça ?
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío; ¿añoraba? ¡Sí, señor!
Pchnąć w tę łódź jeża lub ośm skrzyń fig. Příliš žluťoučký kůň úpěl ďábelské ódy.
Árvíztűrő tükörfúrógép. Fırtınalı İstanbul'da ılık rüzgâr ığdır. Þetta er íslenska og æðislegt.
Съешь же ещё этих мягких французских булок, да выпей чаю. Щастя, ґудзик, їжак, ўсё добра!
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ο καιρός είναι καλός σήμερα, ΟΔΥΣΣΕΥΣ.
דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שָׁלוֹם עֲלֵיכֶם
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. مَرْحَبًا بِالعَالَم ٠١٢٣٤٥٦٧٨٩ ۰۱۲۳
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले। १२३४५ हिन्दी
আমার সোনার বাংলা, আমি তোমায় ভালোবাসি। தமிழ் மொழி மிகவும் பழமையானது. తెలుగు భాష అందమైనది
ಕನ್ನಡ ನಾಡು ನುಡಿ. മലയാളം ഭാഷ. සිංහල අකුරු. เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์
ພາສາລາວ ສະບາຍດີ. မြန်မာဘာသာစကား. ភាសាខ្មែរ សួស្តី ពិភពលោក. བོད་སྐད། འཇིག་རྟེན།
ქართული ენა ძალიან ლამაზია. Հայերեն լեզուն գեղեցիկ է։ አማርኛ ቋንቋ ሰላም ነው። Монгол хэл ᠮᠣᠩᠭᠣᠯ
天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。我能吞下玻璃而不伤身体。2024年1月15日星期一
いろはにほへと ちりぬるを。カタカナとひらがなと漢字、ｶﾀｶﾅ、「東京」へ行きます！ 〜・ー
다람쥐 헌 쳇바퀴에 타고파. 키스의 고유조건은 입술끼리 만나야 하고. 한글 각 ㄱㄴㄷ 뷁
Tiếng Việt có dấu: Con sói già bị rượt đuổi. Tiếng Việt đẹp lắm. ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᐃᓄᒃᑎᑐᑦ
def f(x: int) -> str:\n    return f"{x!r:>10}"  # comment\n\n\nclass A(B):\n\t@property\n\tdef g(self): ...
for (int i = 0; i < n; ++i) { a[i] += b[i] * 0x1F; }  // TODO: fix\r\n#include <vector>\r\n
SELECT * FROM users WHERE name LIKE '%O''Brien%' AND id >= 10; -- drop table
<div class="a b" id='c'>&lt;tag&gt; &amp; text</div><!-- x --> {"key": [1, 2.5e-3, null], "s": "\\u00e9"}
https://example.org/path?q=1&r=%20#frag user.name+tag@mail.example.co.uk C:\\Windows\\System32
$ grep -rn "x" . | awk '{print $1}' > out.txt && echo "done" || exit 1; ~/.bashrc `ls` ^C
👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 😀😃😄 ❤️ ☺️ ✔ ① Ⅷ ½ ² ³ ¼ ₂ ™ © ® № ℃ Å ﬁ ﬂ ﷺ ㍿ ｆｕｌｌｗｉｄｔｈ １２３
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ∑_{i=1}^n i² ≠ ∞ → ⇒ ↔ ≤≥ ± × ÷ √ ∂ ∇ € £ ¥ ₹ ₿ ¢
Zalgo: Z̷̢̛a̸̢l̴̡g̵̨o̶ e\u0301 e\u0301\u0323 e\u0323\u0301 A\u030A \u1100\u1161\u11A8 q\u0307\u0323 \u0344 \u2126 \u212B
"Quotes" 'single' “curly” ‘curly’ „low“ ‚low‘ «guillemets» 'S 'T 'Re 'VE 'lL 'D 'ſ it'S I'LL
a\u00a0b\u2003c\u3000d\u200be\ufefff\u2028g\u2029h\u0085i\u00adj\u202ek\u2066l\u180em\u1680n \x0b\x0c\x1c\x1f\x7f
""".strip().split("\n")
PROSE = [line.encode("latin-1", "backslashreplace").decode("unicode_escape") for line in PROSE]

SPACES = [" ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000",
          "        ", " \t ", "\n\n\n\n", "\r", "\u2003", "\x0b", " \n \n"]
GLUE = ["", "", "", "'", "'s", "'re", "'LL", ".", ",", "!!", "?", "-", "_", "__", "=", "==", "($)",
        "0", "12", "123", "1234", "12345678", "½", "²", "٣٤", "#", "##", "<", ">", "\u0301", "。",
        "、", "\ufffd", "\u200d", "/", "\\", "\"", "+", "~", "`", "▁", "Ġ", "Ċ", "<0x0A>"]


def words():
    return [word for line in PROSE for word in line.split(" ") if word]


def assigned():
    """Every code point that Unicode 14 assigns, without surrogates and private use."""
    return [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]


def every_character():
    """All assigned characters, each in the places where splitting rules look at characters."""
    points = assigned()
    for start in range(0, len(points), 12):
        yield "".join(
            f"a{c}b 1{c}2 {c}{c}3 '{c} .{c}. {c}\n" for c in map(chr, points[start:start + 12]))


def random_string(rng, vocabulary, points, specials):
    kind = rng.randrange(12)
    if kind < 5:  # words of mixed scripts
        parts = []
        for _ in range(rng.randrange(1, 12)):
            parts += [rng.choice(vocabulary), rng.choice(GLUE), rng.choice(SPACES)]
        return "".join(parts)
    if kind < 7:  # part of a line, cut anywhere
        line = rng.choice(PROSE)
        start = rng.randrange(len(line))
        return line[start:start + rng.randrange(1, 80)]
    if kind == 7:  # random characters of a block, so that scripts stay together
        base = rng.choice(points)
        near = [c for c in range(base, base + 96) if unicodedata.category(chr(min(c, 0x10FFFF)))
                not in ("Cs", "Cn", "Co")] or [0x61]
        return "".join(chr(rng.choice(near)) + rng.choice(["", "", " ", "1"])
                       for _ in range(rng.randrange(1, 30)))
    if kind == 8:  # anything at all
        return "".join(chr(rng.choice(points)) for _ in range(rng.randrange(1, 20)))
    if kind == 9:  # spaces, digits, punctuation and quotes
        return "".join(rng.choice(SPACES + GLUE + list("abcXYZ019'\"")) for _ in range(rng.randrange(1, 30)))
    if kind == 10:  # long runs
        piece = rng.choice(["a", " ", "\n", "=", "é", "字", "👍", "1", "ab", "-", "\t", "A", "\u0301", "the "])
        return rng.choice(["", "x", " "]) + piece * rng.randrange(1, 70) + rng.choice(["", "b", " c", "\n"])
    parts = []  # special tokens and near misses
    for _ in range(rng.randrange(1, 6)):
        parts += [rng.choice(specials), rng.choice(SPACES + GLUE), rng.choice(vocabulary + ["<|", "|>", "<", "[", "]"])]
    return "".join(parts)


def broken(rng, text):
    """The bytes of a text with some cut out, changed or put in."""
    data = bytearray(text.encode())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        action = rng.randrange(3)
        if action == 0 and data:
            del data[min(at, len(data) - 1)]
        elif action == 1 and data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        else:
            data[at:at] = rng.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82",
                                      b"\x80", b"\xc0\xaf", b"\xf0\x9f\x98", b"\xe0\x80\x80", b"\xf8\x88"])
    return bytes(data)


def generate(count, seed, specials):
    """`count` byte strings; one in ten is broken UTF-8. The same for the same seed."""
    rng = random.Random(seed)
    vocabulary, points = words(), assigned()
    yield from (line.encode() for line in PROSE)
    yield b""
    for _ in range(count - len(PROSE) - 1):
        text = random_string(rng, vocabulary, points, specials)
        yield broken(rng, text) if rng.randrange(10) == 0 else text.encode()
