"""A GPT-2-shaped model in plain PyTorch, in the manner of nanoGPT: what an engineer would write.

Pre-LN blocks, learned positions, tanh GELU, biases, tied embedding; attention is PyTorch's
scaled_dot_product_attention. `chunk` > 0 computes the loss over that many tokens at a time (ChunkedLoss), so that the
logits are never held whole.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):  # x [sequences, tokens, width]
        n, t, width = x.shape
        q, k, v = (
            part.view(n, t, self.heads, width // self.heads).transpose(1, 2)  # [sequences, heads, tokens, head width]
            for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class ChunkedLoss(torch.autograd.Function):
    """Mean cross-entropy of x·Wᵀ, `chunk` rows at a time; both gradients are computed in the forward pass."""

    @staticmethod
    def forward(ctx, x, weight, targets, chunk):  # x [rows, width], weight [vocabulary, width], targets [rows]
        compute = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
        with torch.autocast("cpu", enabled=False):
            w = weight.to(compute)
            dx = torch.empty_like(x)
            dw = torch.zeros_like(weight)
            loss = x.new_zeros((), dtype=torch.float32)
            for start in range(0, x.shape[0], chunk):
                rows = x[start : start + chunk].to(compute)
                target = targets[start : start + chunk]
                logits = (rows @ w.T).float()  # [chunk, vocabulary]
                logsum = logits.logsumexp(dim=1, keepdim=True)
                loss += (logsum.squeeze(1) - logits.gather(1, target[:, None]).squeeze(1)).sum()
                grad = logits.sub_(logsum).exp_()
                grad.scatter_add_(1, target[:, None], grad.new_full((len(target), 1), -1.0))
                grad = grad.div_(x.shape[0]).to(compute)
                dx[start : start + chunk] = grad @ w
                if compute == weight.dtype:
                    dw.addmm_(grad.T, rows)
                else:
                    dw += grad.T @ rows
        ctx.save_for_backward(dx, dw)
        return loss / x.shape[0]

    @staticmethod
    def backward(ctx, grad):
        dx, dw = ctx.saved_tensors
        return dx * grad, dw * grad, None, None


class GPT(nn.Module):
    def __init__(self, shape, chunk=0):
        super().__init__()
        self.chunk = chunk
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.tokens, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual_out = name.endswith(("attention.out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * shape.layers) if residual_out else 1.0))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids, targets):  # both [sequences, tokens]
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if self.chunk:
            return ChunkedLoss.apply(x.view(-1, x.shape[-1]), self.tokens.weight, targets.view(-1), self.chunk)
        logits = F.linear(x, self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
