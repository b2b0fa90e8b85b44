# Checkpoints as other programs see them: the data files are safetensors, `checkpoint` says what is
# there and what is damaged, and transformers loads an export with every weight in its place.
import json
import shutil
import subprocess
import sys
from pathlib import Path

try:
    import numpy
    import safetensors
    from safetensors.numpy import load_file
    import transformers
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --tests installs it")
    sys.exit(77)

program = Path(sys.argv[1])
make_checkpoint = program.parent / "tests" / "make_checkpoint"
work = Path("work")
shutil.rmtree(work, ignore_errors=True)
work.mkdir()


def run(*arguments, code=0):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


# A tokenizer for the checkpoints to hold.
text = work / "text.txt"
text.write_text("the cat sat on the mat, and the dog lay by the door.\n" * 200)
run("tokenizer", "train", "--input", text, "--vocab-size", 280, "--out", work / "tokenizer.json")
vocabulary = 300  # a model may have more rows than its tokenizer has items


def weights_of(checkpoint):
    """The master weights, straight from the data files."""
    weights = {}
    for path in sorted(checkpoint.glob("data-*.safetensors")):
        with safetensors.safe_open(path, framework="numpy") as file:
            assert file.metadata()["format"] == "sauropod-checkpoint"
        for name, tensor in load_file(path).items():
            kind, parameter = name.split("/", 1)
            assert "[" not in parameter, "so small a tensor is not cut"
            if kind == "master":
                weights[parameter] = tensor
    return weights


def expected_gpt2(ours):
    block = {}
    for layer in range(2):
        old, new = f"layers.{layer}.", f"transformer.h.{layer}."
        for kind in ("weight", "bias"):
            turn = (lambda array: array.T) if kind == "weight" else (lambda array: array)
            stacked = [ours[f"{old}attention.{part}.{kind}"] for part in ("query", "key", "value")]
            block[f"{new}attn.c_attn.{kind}"] = turn(numpy.concatenate(stacked))
            block[f"{new}attn.c_proj.{kind}"] = turn(ours[f"{old}attention.output.{kind}"])
            block[f"{new}mlp.c_fc.{kind}"] = turn(ours[f"{old}mlp.up.{kind}"])
            block[f"{new}mlp.c_proj.{kind}"] = turn(ours[f"{old}mlp.down.{kind}"])
            block[f"{new}ln_1.{kind}"] = ours[f"{old}attention.norm.{kind}"]
            block[f"{new}ln_2.{kind}"] = ours[f"{old}mlp.norm.{kind}"]
    for kind in ("weight", "bias"):
        block[f"transformer.ln_f.{kind}"] = ours[f"final_norm.{kind}"]
    block["transformer.wte.weight"] = block["lm_head.weight"] = ours["embedding.token.weight"]
    block["transformer.wpe.weight"] = ours["embedding.position.weight"]
    return block


def expected_llama(ours):
    names = {"attention.norm": "input_layernorm", "attention.query": "self_attn.q_proj",
             "attention.key": "self_attn.k_proj", "attention.value": "self_attn.v_proj",
             "attention.output": "self_attn.o_proj", "mlp.norm": "post_attention_layernorm",
             "mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}
    block = {f"model.layers.{layer}.{new}.weight": ours[f"layers.{layer}.{old}.weight"]
             for layer in range(2) for old, new in names.items()}
    block["model.embed_tokens.weight"] = ours["embedding.token.weight"]
    block["model.norm.weight"] = ours["final_norm.weight"]
    block["lm_head.weight"] = ours["head.weight"]
    return block


for family, model_class, expected in (("jurassic", "GPT2LMHeadModel", expected_gpt2),
                                      ("llama", "LlamaForCausalLM", expected_llama)):
    folder = work / family
    subprocess.run([make_checkpoint, folder / "checkpoints", family, work / "tokenizer.json",
                    str(vocabulary)], check=True)
    checkpoint = folder / "checkpoints" / "step-000000005"

    listed = json.loads(run("checkpoint", "ls", "--json", folder).stdout)["checkpoints"]
    assert [(entry["step"], entry["intact"], entry["tokens"]) for entry in listed] == [(5, True, 12345)]
    shown = json.loads(run("checkpoint", "show", "--json", "--boxes", "--contents", checkpoint).stdout)
    assert shown["model"]["family"] == family
    # So small a tensor is one box, whose hash is that of its contents.
    assert [t["hash"] for t in shown["tensors"]] == [box["hash"] for t in shown["tensors"] for box in t["boxes"]]
    described = run("checkpoint", "show", "--contents", checkpoint).stdout
    for entry in (shown["contents"], *(tensor["hash"] for tensor in shown["tensors"])):
        assert len(entry) == 32 and entry in described, entry
    assert run("checkpoint", "ls", folder).stdout.count("unfinished") == 0
    unfinished = folder / "checkpoints" / "step-000000006"
    unfinished.mkdir()
    (unfinished / "data-01234567-r00000-0000.safetensors").write_bytes(bytes(1000))
    listing = json.loads(run("checkpoint", "ls", "--json", folder).stdout)
    assert [entry["step"] for entry in listing["checkpoints"]] == [5]
    assert [(entry["step"], entry["bytes"]) for entry in listing["unfinished"]] == [(6, 1000)]
    assert "step-000000006" in run("checkpoint", "ls", folder).stdout
    run("checkpoint", "verify", folder)

    for dtype in ("F32", "BF16"):
        exported = work / f"{family}-{dtype}"
        run("checkpoint", "export", "--format", "hf", "--dtype", dtype, "--out", exported, folder)
        load_file(exported / "model.safetensors") if dtype == "F32" else None
        model, info = getattr(transformers, model_class).from_pretrained(exported, output_loading_info=True)
        for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            assert not info[problem], f"{family}: {problem}: {info[problem]}"
        assert "bfloat16" in str(model.dtype) if dtype == "BF16" else "float32" in str(model.dtype)
        theirs = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
        ours = expected(weights_of(checkpoint))
        assert theirs.keys() == ours.keys(), theirs.keys() ^ ours.keys()
        for name, tensor in ours.items():
            if dtype == "F32":
                assert numpy.array_equal(theirs[name], tensor), name
            else:
                assert numpy.allclose(theirs[name], tensor, rtol=2**-8, atol=0), name
        auto = transformers.AutoTokenizer.from_pretrained(exported)
        assert auto.eos_token_id == 0, auto.eos_token_id
        sample = "the cat sat on the mat"
        (work / "sample.txt").write_text(sample)
        ids = json.loads(run("tokenizer", "encode", "--tokenizer", work / "tokenizer.json", "--json",
                             work / "sample.txt").stdout)
        assert auto(sample, add_special_tokens=False)["input_ids"] == ids
    again = run("checkpoint", "export", "--format", "hf", "--out", exported, folder, code=2)
    assert "exists already" in again.stderr

    damaged = sorted(checkpoint.glob("data-*.safetensors"))[1]
    content = bytearray(damaged.read_bytes())
    content[-5] ^= 16
    damaged.write_bytes(content)
    for arguments in (("verify", folder), ("export", "--out", work / "none", folder)):
        failed = run("checkpoint", *arguments, code=1)
        assert damaged.name in failed.stderr + failed.stdout, failed.stderr
    assert not (work / "none").exists()
    damaged.write_bytes(content[:-1])
    listed = json.loads(run("checkpoint", "ls", "--json", folder).stdout)["checkpoints"]
    assert not listed[0]["intact"] and damaged.name in listed[0]["damages"][0]

run("checkpoint", "ls", work / "no such folder", code=2)
print("checkpoints: as other programs see them")
