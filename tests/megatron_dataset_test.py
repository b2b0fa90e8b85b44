#!/usr/bin/env python3
"""Packed data and PyPI megatron-core's IndexedDataset read each other.

    megatron_dataset_test.py SAUROPOD      in an empty folder; 77 when megatron-core is missing
"""
import json
import pathlib
import random
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")
try:
    import numpy
    import torch
    from megatron.core.datasets import indexed_dataset
except ImportError as error:
    print(f"SKIPPED: {error} (scripts/setup --tests installs megatron-core)")
    sys.exit(77)

program = sys.argv[1]


def sauropod(*arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout


def documents():
    """Texts of words from a small stock, with some bytes that are not UTF-8."""
    chance = random.Random(7)
    words = ["".join(chance.choices("abcdefgh", k=chance.randint(1, 7))) for _ in range(200)]
    texts = []
    for number in range(400):
        text = " ".join(chance.choices(words, k=chance.randint(1, 300))).encode()
        texts.append(text + b" \xff\x00\r\n" if number % 5 == 0 else text)
    return texts


def pack(folder, texts, vocabulary):
    (folder / "text").mkdir(parents=True)
    for number, text in enumerate(texts):
        (folder / "text" / f"{number:04}.txt").write_bytes(text)
    tokenizer = folder / "tokenizer.json"
    sauropod("tokenizer", "train", "--input", folder / "text", "--vocab-size", vocabulary, "--out", tokenizer)
    record = json.loads(sauropod("data", "pack", "--tokenizer", tokenizer, "--input", folder / "text", "--out",
                                 folder / "data", "--valid-fraction", "0.1", "--json"))
    return tokenizer, record


def check_ours(folder, tokenizer, record):
    """Megatron sees the same documents that inspect decodes."""
    for side in ("train", "valid"):
        prefix = folder / "data" / side
        theirs = indexed_dataset.IndexedDataset(str(prefix))
        counts = record["splits"][side]
        assert len(theirs) == counts["documents"] > 0
        assert len(theirs.document_indices) == counts["documents"] + 1
        assert int(theirs.sequence_lengths.sum()) == counts["tokens"]
        assert theirs.index.dtype == numpy.dtype(record["token_type"]).type
        sauropod("data", "inspect", prefix, "--tokenizer", tokenizer, "--decode-to", folder / side)
        names = sorted((folder / side).iterdir())
        assert len(names) == len(theirs)
        for number, name in enumerate(names):
            ids = theirs[number].tolist()
            assert ids[-1] == record["tokenizer"]["end_of_document"]
            again = json.loads(subprocess.run([program, "tokenizer", "encode", "--tokenizer", str(tokenizer), "--json",
                                               str(name)], check=True, stdout=subprocess.PIPE).stdout)
            assert ids[:-1] == again, f"{side} document {number}"
            if number == 20:
                break


def check_theirs(folder, source, tokenizer, vocabulary):
    """A data set that Megatron's builder wrote, with documents of several sequences, in each token type."""
    ours = indexed_dataset.IndexedDataset(str(source))
    text = sauropod("data", "inspect", source, "--tokenizer", tokenizer, "--decode")
    for dtype in (numpy.uint16, numpy.int16, numpy.int32, numpy.int64):
        assert vocabulary <= 32767
        prefix = folder / f"theirs-{numpy.dtype(dtype).name}"
        builder = indexed_dataset.IndexedDatasetBuilder(indexed_dataset.get_bin_path(str(prefix)), dtype=dtype)
        for number in range(len(ours)):
            ids = torch.tensor(ours[number].astype(numpy.int64))
            cut = len(ids) // 3
            if number % 2 == 0:
                builder.add_document(torch.cat([ids[:cut], ids[cut:]]), [cut, len(ids) - cut])
            else:
                builder.add_item(ids)
                builder.end_document()
        builder.finalize(indexed_dataset.get_idx_path(str(prefix)))
        seen = json.loads(sauropod("data", "inspect", prefix, "--json"))["corpora"][0]
        assert seen["documents"] == len(ours)
        assert seen["sequences"] == len(ours) + (len(ours) + 1) // 2
        assert seen["token_type"] == numpy.dtype(dtype).name
        assert sauropod("data", "inspect", prefix, "--tokenizer", tokenizer, "--decode") == text


def main():
    folder = pathlib.Path("work")
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    texts = documents()
    tokenizer, record = pack(folder, texts, 600)
    assert record["token_type"] == "uint16"
    check_ours(folder, tokenizer, record)
    check_theirs(folder, folder / "data" / "valid", tokenizer, 600)
    packed = sum(record["splits"][side]["bytes"] for side in ("train", "valid"))
    assert packed == sum(map(len, texts))
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    print("megatron-core reads our data, and we read its")


main()
