"""A PyTorch worker of the training benchmark: worker.py --model eager|compile|chunked|transformers --shape a
--precision fp32|bf16. Speaks the protocol of README.md."""
import argparse
import os

import torch

import gpt
import shapes


def build(model, shape):
    if model != "transformers":
        return gpt.GPT(shape, chunk=256 if model == "chunked" else 0)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    config = transformers.GPT2Config(
        vocab_size=shape.vocabulary, n_positions=shape.tokens, n_embd=shape.width, n_layer=shape.layers,
        n_head=shape.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return transformers.GPT2LMHeadModel(config)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["eager", "compile", "chunked", "transformers"], required=True)
    parser.add_argument("--shape", choices=shapes.SHAPES, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    options = parser.parse_args()
    shape = shapes.SHAPES[options.shape]
    torch.manual_seed(1)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))

    model = build(options.model, shape).train()
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    forward = model
    if options.model == "compile":
        forward = torch.compile(model)
    draw = torch.Generator().manual_seed(2)

    def step():
        batch = torch.randint(shape.vocabulary, (shape.sequences, shape.tokens + 1), generator=draw)
        ids, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            if options.model == "transformers":
                logits = forward(input_ids=ids).logits
                loss = torch.nn.functional.cross_entropy(logits.view(-1, shape.vocabulary), targets.view(-1))
            else:
                loss = forward(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    shapes.serve(step, shape.sequences * shape.tokens, f"PyTorch {options.model}",
                 sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
