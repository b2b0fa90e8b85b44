"""Logits, loss and every gradient equal those of transformers, which loads our own export, in fp32.

The jurassic family against GPT2LMHeadModel, llama against LlamaForCausalLM; each tensor by
‖a − b‖/‖b‖ to 1e-4. The bias of the keys adds the same to all scores of a query, so its true gradient
is 0: it is judged by the size of the query bias's gradient.

Usage: huggingface_gradients_test.py PROGRAM (in a folder to work in).
"""

import shutil
import subprocess
import sys
from pathlib import Path

try:
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as error:
    print(f"skipped: {error}; scripts/setup --tests installs it")
    sys.exit(77)

TOLERANCE = 1e-4
program = Path(sys.argv[1]).resolve()
model_probe = program.parent / "tests" / "model_probe"
work = Path("work")
shutil.rmtree(work, ignore_errors=True)
work.mkdir()


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"


def gpt2_gradients(model, layers):
    """The gradients under our names; transformers keeps these weights transposed, and q, k, v in one."""
    body = model.transformer
    yield "embedding.token.weight", body.wte.weight.grad
    yield "embedding.position.weight", body.wpe.weight.grad
    for n in range(layers):
        block, name = body.h[n], f"layers.{n}."
        for part, norm in (("attention", block.ln_1), ("mlp", block.ln_2)):
            yield f"{name}{part}.norm.weight", norm.weight.grad
            yield f"{name}{part}.norm.bias", norm.bias.grad
        for i, part in enumerate(("query", "key", "value")):
            yield f"{name}attention.{part}.weight", block.attn.c_attn.weight.grad.T.chunk(3)[i]
            yield f"{name}attention.{part}.bias", block.attn.c_attn.bias.grad.chunk(3)[i]
        for part, layer in (("attention.output", block.attn.c_proj), ("mlp.up", block.mlp.c_fc), ("mlp.down", block.mlp.c_proj)):
            yield f"{name}{part}.weight", layer.weight.grad.T
            yield f"{name}{part}.bias", layer.bias.grad
    yield "final_norm.weight", body.ln_f.weight.grad
    yield "final_norm.bias", body.ln_f.bias.grad


def llama_gradients(model, layers):
    body = model.model
    yield "embedding.token.weight", body.embed_tokens.weight.grad
    for n in range(layers):
        block, name = body.layers[n], f"layers.{n}."
        yield f"{name}attention.norm.weight", block.input_layernorm.weight.grad
        yield f"{name}mlp.norm.weight", block.post_attention_layernorm.weight.grad
        for part, layer in (("query", block.self_attn.q_proj), ("key", block.self_attn.k_proj), ("value", block.self_attn.v_proj), ("output", block.self_attn.o_proj)):
            yield f"{name}attention.{part}.weight", layer.weight.grad
        for part, layer in (("gate", block.mlp.gate_proj), ("up", block.mlp.up_proj), ("down", block.mlp.down_proj)):
            yield f"{name}mlp.{part}.weight", layer.weight.grad
    yield "final_norm.weight", body.norm.weight.grad
    yield "head.weight", model.lm_head.weight.grad


def compare(family, model_class, gradients_of, layers=3):
    folder = work / family
    folder.mkdir()
    run(model_probe, folder, family, work / "tokenizer.json", 300)
    run(program, "checkpoint", "export", "--format", "hf", "--out", folder / "hf", folder / "checkpoint")
    ours = load_file(folder / "probe.safetensors")
    model = model_class.from_pretrained(folder / "hf", dtype=torch.float32, attn_implementation="eager").eval()
    assert type(model) is model_class and model.dtype == torch.float32

    tokens = ours["tokens"].long()
    result = model(tokens, labels=tokens)  # shifts the labels itself
    result.loss.backward()
    logits = result.logits[:, :-1].reshape(ours["logits"].shape)

    def error(got, expected, size=None):
        assert got.shape == expected.shape, (got.shape, expected.shape)
        size = (expected if size is None else size).double().norm()
        assert size > 0
        return ((got.double() - expected.double()).norm() / size).item()

    errors = {"loss": error(ours["loss"], result.loss.detach()), "logits": error(ours["logits"], logits.detach())}
    theirs = dict(gradients_of(model, layers))
    left = {name for name in ours if name.startswith("gradient/")} - {f"gradient/{name}" for name in theirs}
    assert not left, f"not compared: {left}"
    for name, expected in theirs.items():
        size = theirs[name.replace(".key.", ".query.")] if name.endswith("key.bias") else None
        errors[name] = error(ours[f"gradient/{name}"], expected, size)
    worst = max(errors, key=errors.get)
    print(f"{family}: {model_class.__name__}, {len(errors)} tensors; worst {worst} {errors[worst]:.1e}; loss {result.loss.item():.4f}, off by {errors['loss']:.1e}; logits {errors['logits']:.1e}")
    wrong = {name: value for name, value in errors.items() if not value <= TOLERANCE}
    assert not wrong, f"{family}: further than {TOLERANCE} from transformers: {wrong}"


torch.set_num_threads(2)
text = work / "text.txt"
text.write_text("the cat sat on the mat, and the dog lay by the door.\n" * 200)
run(program, "tokenizer", "train", "--input", text, "--vocab-size", 280, "--out", work / "tokenizer.json")
compare("jurassic", transformers.GPT2LMHeadModel, gpt2_gradients)
compare("llama", transformers.LlamaForCausalLM, llama_gradients)
shutil.rmtree(work)
