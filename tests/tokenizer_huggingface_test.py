"""The exported tokenizer.json gives our ids in PyPI `tokenizers`, on 1 MB of mixed text.

Where the two differ, both sequences must be equally probable and equally long: such ties are counted
and shown. Usage: tokenizer_huggingface_test.py PROGRAM (in a folder to work in).
"""

import json
import pathlib
import random
import subprocess
import sys

try:
    from tokenizers import Tokenizer
except ImportError:
    print("skipped: the Python package `tokenizers` is not installed")
    sys.exit(77)

program = sys.argv[1]
repository = pathlib.Path(__file__).resolve().parent.parent
size = 1_000_000

SENTENCES = """
The Senate of the U.S. met on the first day of the year, and Dr. Smith wrote to the editor of the New York Times.
Der schnelle braune Fuchs springt über den faulen Hund, während die Königin in München Bücher liest.
Les élèves de l'école ont mangé des crêpes à la fête ; ils étaient très contents, n'est-ce pas ?
El niño comió piñas en la montaña. ¿Dónde está la biblioteca? ¡Aquí mismo!
Быстрая коричневая лиса перепрыгивает через ленивую собаку. Это предложение на русском языке.
Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.
敏捷的棕色狐狸跳过了懒狗。这是一个中文句子，用来测试分词器。
素早い茶色の狐がのろまな犬を飛び越える。これは日本語の文です。
빠른 갈색 여우가 게으른 개를 뛰어넘는다. 이것은 한국어 문장입니다.
الثعلب البني السريع يقفز فوق الكلب الكسول.
השועל החום המהיר קופץ מעל הכלב העצלן.
तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।
👩‍👩‍👧‍👦 family, 🇩🇪🇯🇵 flags, 👍🏽 thumbs (☕️ coffee), e.g. 1️⃣ 2️⃣ 3️⃣ 🏴󠁧󠁢󠁳󠁣󠁴󠁿
\ufeffA mark, a no-break\u00a0space, a literal ▁ and <0x41>, \u200bzero width, cafe\u0301 and café, ﬁ ligature, Ⅷ, ½
<p class="x">Some <b>bold</b> &amp; <i>italic</i> text</p>\r\n<br/>\r\n
\tif (x == 0) {\n\t\treturn foo(bar, baz);\n\t}\n
\\begin{equation} e^{i\\pi} + 1 = 0 \\end{equation}
""".strip().split("\n")


def mixed_text():
    """A list of documents with at least `size` bytes in all."""
    rng = random.Random(20240229)
    files = sorted(
        path
        for folder, endings in (("src", ("h", "cpp")), ("docs", ("md", "svg")), ("tests", ("py",)), ("cmake", ("cmake",)))
        for ending in endings
        for path in (repository / folder).rglob(f"*.{ending}")
    )
    lines = [line for path in files for line in path.read_text(encoding="utf-8").split("\n")]

    def code():
        begin = rng.randrange(len(lines))
        return "\n".join(lines[begin : begin + rng.randrange(1, 60)])

    def languages():
        words = " ".join(rng.choices(SENTENCES, k=rng.randrange(1, 6))).split(" ")
        if rng.random() < 0.5:
            rng.shuffle(words)
        return rng.choice([" ", "  ", ". ", ".\n", ", "]).join(words)

    def whitespace():
        return "".join(
            rng.choice([" " * rng.randrange(1, 41), "\t", "\n", "\r\n", "\n\n\n", "a", "the", ".", "word. ", "x.", "(", ")", ","])
            for _ in range(rng.randrange(5, 200))
        )

    def letters():
        return "".join(rng.choice("ab .,()\n") for _ in range(rng.randrange(5, 200))) + "a" * rng.randrange(80)

    def unicode():
        points = (rng.choice((rng.randrange(0x20, 0x250), rng.randrange(0x20, 0xD800), rng.randrange(0xE000, 0x110000))) for _ in range(200))
        return "".join(map(chr, points))

    documents, total = [], 0
    while total < size:
        kind = rng.choices([code, languages, whitespace, letters, unicode], weights=[8, 6, 2, 1, 1])[0]
        documents.append(kind())
        total += len(documents[-1].encode())
    return documents


def run(*arguments, stdin=None):
    return subprocess.run([program, "tokenizer", *arguments], input=stdin, stdout=subprocess.PIPE, check=True).stdout


def main():
    documents = mixed_text()
    text = "\n".join(documents)
    pathlib.Path("mixed.txt").write_bytes(text.encode())
    run("train", "--input", "mixed.txt", "--vocab-size", "6000", "--out", "tok.json", "--min-count", "6")
    run("export", "--tokenizer", "tok.json", "--format", "hf", "--out", "tokenizer.json")
    theirs = Tokenizer.from_file("tokenizer.json")
    # The special item is for programs; text that looks like it is text to us, and to them if told so.
    name = "<|endofdocument|>"
    assert theirs.encode(name).ids == [0]
    theirs.encode_special_tokens = True
    file = json.loads(pathlib.Path("tok.json").read_text(encoding="utf-8"))
    costs = [0, *file["bytes"], *(cost for _, cost in file["items"])]
    multi_word = sum(" " in item.strip(" ") for item, _ in file["items"])
    assert theirs.get_vocab_size() == file["size"] == len(costs), (theirs.get_vocab_size(), file["size"], len(costs))
    assert multi_word > 50, f"only {multi_word} items of several words: the text does not test them"

    def ours(text):
        return json.loads(run("encode", "--tokenizer", "tok.json", "--json", stdin=text.encode()))

    expected, got = ours(text), theirs.encode(text, add_special_tokens=False).ids
    assert run("decode", "--tokenizer", "tok.json", stdin=json.dumps(got).encode()) == text.encode()
    assert theirs.decode(got, skip_special_tokens=False) == text

    # Compare between the places where both sequences have spelled the same text.
    pieces = [b"", *(bytes([b]) for b in range(256)), *(unescape(item) for item, _ in file["items"])]
    ties, tied_tokens, at, there = [], 0, 0, 0
    while at < len(expected) or there < len(got):
        if at < len(expected) and there < len(got) and expected[at] == got[there]:
            at, there = at + 1, there + 1
            continue
        a, b = [expected[at]], [got[there]]
        while (length := sum(len(pieces[i]) for i in a)) != (other := sum(len(pieces[i]) for i in b)):
            a, b = (a + [expected[at + len(a)]], b) if length < other else (a, b + [got[there + len(b)]])
        at, there = at + len(a), there + len(b)
        shown = [[pieces[i] for i in ids] for ids in (a, b)]
        assert sum(costs[i] for i in a) == sum(costs[i] for i in b) and len(a) == len(b), f"not a tie: ours {shown[0]}, theirs {shown[1]}"
        ties.append(shown)
        tied_tokens += len(a)
    print(f"{len(text.encode())} bytes, {len(expected)} tokens, {multi_word} items of several words")
    print(f"{len(ties)} differences, each a tie of equal probability and length, with {tied_tokens} tokens in them")
    for a, b in ties[:5]:
        print("  ours", a, "theirs", b)

    assert theirs.encode(name).ids == ours(name) and 0 not in ours(name)


def unescape(item):
    out, at, data = bytearray(), 0, item.encode()
    while at < len(data):
        if data[at] != ord("\\"):
            out.append(data[at])
            at += 1
        elif data[at + 1] == ord("\\"):
            out.append(data[at])
            at += 2
        else:
            out.append(int(data[at + 2 : at + 4], 16))
            at += 4
    return bytes(out)


main()
