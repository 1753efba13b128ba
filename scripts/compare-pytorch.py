#!/usr/bin/env python3
"""Times GPT-2 in PyTorch on the shapes that GpuBenchmark has for Loupe, a line of JSON for each.

Random weights of the same configuration; batch 1; greedy; a prompt, then tokens one by one, the ids staying
on the device. With transformers installed: its GPT2LMHeadModel with eager attention, with SDPA, and with
output_attentions=True; its forward pass is called in a plain loop, without what generate() does around it.
Always: a small GPT-2 of our own with SDPA, where a token is one call of a torch.compile'd step
(reduce-overhead: a CUDA graph) over a KV cache of fixed size. Exits with 77 and the reason where PyTorch or
its GPU are missing.
"""

import argparse
import inspect
import json
import statistics
import sys
import time


def skip(reason):
    print(reason)
    sys.exit(77)


try:
    import torch
    import torch.nn.functional as F
    from torch._dynamo.utils import counters as dynamo_counters
except ImportError as e:
    skip(f"PyTorch is not installed for {sys.executable}: {e}")
try:
    import transformers
except ImportError:
    transformers = None

SIZES = {  # layers, heads, width, positions, vocabulary
    "tiny": (2, 4, 64, 128, 500),
    "gpt2": (12, 12, 768, 1024, 50257),
    "gpt2-medium": (24, 16, 1024, 1024, 50257),
    "gpt2-xl": (48, 25, 1600, 1024, 50257),
}


class Gpt2:
    """GPT-2 without dropout: T tokens of one sequence at a position, keys and values kept for all positions."""

    def __init__(self, size, device, dtype):
        self.layers, self.heads, self.width, self.positions, vocabulary = SIZES[size]
        C, L = self.width, self.layers

        def random(*shape):
            return torch.randn(*shape, device=device, dtype=dtype) * 0.02

        def norm():
            return torch.ones(C, device=device, dtype=dtype), torch.zeros(C, device=device, dtype=dtype)

        def linear(n_in, n_out):
            return random(n_out, n_in), torch.zeros(n_out, device=device, dtype=dtype)

        self.wte, self.wpe = random(vocabulary, C), random(self.positions, C)
        self.ln_f = norm()
        self.blocks = [
            (norm(), linear(C, 3 * C), linear(C, C), norm(), linear(C, 4 * C), linear(4 * C, C)) for _ in range(L)
        ]
        shape = (1, self.heads, self.positions, C // self.heads)
        self.cache = [
            (torch.zeros(shape, device=device, dtype=dtype), torch.zeros(shape, device=device, dtype=dtype))
            for _ in range(L)
        ]
        self.places = torch.arange(self.positions, device=device)

    def stay(self):
        """Tells torch.compile that weights and cache keep their addresses: else its graph would copy them."""
        def tensors(x):
            return [x] if torch.is_tensor(x) else [t for part in x for t in tensors(part)]

        for t in tensors((self.wte, self.wpe, self.ln_f, self.blocks, self.cache, self.places)):
            torch._dynamo.mark_static_address(t)
        return self

    def take(self, model):
        """The weights of a GPT2LMHeadModel, whose linear layers are stored [in, out]."""
        t = model.transformer

        def norm(m):
            return m.weight.detach(), m.bias.detach()

        def linear(m):
            return m.weight.detach().t().contiguous(), m.bias.detach()

        self.wte, self.wpe, self.ln_f = t.wte.weight.detach(), t.wpe.weight.detach(), norm(t.ln_f)
        self.blocks = [
            (norm(h.ln_1), linear(h.attn.c_attn), linear(h.attn.c_proj), norm(h.ln_2), linear(h.mlp.c_fc),
             linear(h.mlp.c_proj))
            for h in t.h
        ]

    def step(self, ids, at):
        """ids [1, T] at the positions at [T] -> logits [1, 1, V] of the last; T = 1, or a prompt from 0 on."""
        T, C, H = ids.shape[1], self.width, self.heads
        x = F.embedding(ids, self.wte) + self.wpe[at]
        mask = None if T > 1 else (self.places <= at).view(1, 1, 1, -1)
        for (ln_1, c_attn, c_proj, ln_2, c_fc, mlp_c_proj), (keys, values) in zip(self.blocks, self.cache):
            qkv = F.linear(F.layer_norm(x, (C,), *ln_1), *c_attn).view(1, T, 3, H, C // H)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            keys.index_copy_(2, at, k)
            values.index_copy_(2, at, v)
            if T > 1:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + F.linear(y.transpose(1, 2).reshape(1, T, C), *c_proj)
            h = F.gelu(F.linear(F.layer_norm(x, (C,), *ln_2), *c_fc), approximate="tanh")
            x = x + F.linear(h, *mlp_c_proj)
        return F.linear(F.layer_norm(x[:, -1:], (C,), *self.ln_f), self.wte)


class OwnRun:
    """A run of Gpt2: the prompt by step, tokens by `decode`, which is step or what was compiled from it."""

    def __init__(self, model, decode):
        self.model, self.decode = model, decode

    def prefill(self, ids):
        self.at = torch.arange(ids.shape[1], device=ids.device)
        logits = self.model.step(ids, self.at)
        self.at = self.at[-1:] + 1
        return logits.argmax(-1)

    def next(self, token):
        torch.compiler.cudagraph_mark_step_begin()
        token = self.decode(token, self.at).argmax(-1).clone()  # the graph writes its memory anew
        self.at = self.at + 1
        return token


class HfRun:
    """A run of GPT2LMHeadModel; with maps, each pass also gives the probabilities of all heads."""

    def __init__(self, model, maps):
        self.model = model
        self.more = {"output_attentions": True} if maps else {}
        if "logits_to_keep" in inspect.signature(model.forward).parameters:
            self.more["logits_to_keep"] = 1  # of the last row, as Loupe does

    def prefill(self, ids):
        self.past = None
        return self.next(ids)

    def next(self, token):
        out = self.model(token, past_key_values=self.past, use_cache=True, **self.more)
        self.past = out.past_key_values
        return out.logits[:, -1:].argmax(-1)


def now(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def spread(ms):
    return {"median": round(statistics.median(ms), 3), "least": round(min(ms), 3), "most": round(max(ms), 3)}


def measure(run, args, prompt, tokens):
    """Milliseconds of the prompt, and of all tokens: the first is there by then, as it nearly is in Loupe."""
    ids = torch.randint(0, SIZES[args.size][4], (1, prompt), device=args.device)
    prefill, decode = [], []
    for i in range(-args.warm_up, args.runs):
        start = now(args.device)
        token = run.prefill(ids)
        between = now(args.device)
        for _ in range(tokens - 1):
            token = run.next(token)
        end = now(args.device)
        if i >= 0:
            prefill.append(1e3 * (between - start))
            decode.append(1e3 * (end - between))
    return prefill, decode


def hf_model(size, attention, device, dtype):
    layers, heads, width, positions, vocabulary = SIZES[size]
    config = transformers.GPT2Config(n_layer=layers, n_head=heads, n_embd=width, n_positions=positions,
                                     vocab_size=vocabulary, bos_token_id=0, eos_token_id=0)
    config._attn_implementation = attention
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(config).to(device=device, dtype=dtype).eval()


def check_own(args):
    """Our own GPT-2 computes what transformers' does, prompt and tokens."""
    theirs = hf_model(args.size, "eager", args.device, torch.float32)
    ours = Gpt2(args.size, args.device, torch.float32)
    ours.take(theirs)
    ids = torch.randint(0, SIZES[args.size][4], (1, 12), device=args.device)
    expected = theirs(ids).logits[0]
    at = torch.arange(12, device=args.device)
    actual = [ours.step(ids[:, :10], at[:10])] + [ours.step(ids[:, t : t + 1], at[t : t + 1]) for t in (10, 11)]
    off = (torch.cat(actual, 1)[0] - expected[9:]).abs().max().item()
    if not off < 1e-3 * expected.std().item():
        sys.exit(f"our own GPT-2 is off by {off}")


def ways(args, dtype):
    """Name, maps, and what makes the run."""
    def own(compiled):
        model = Gpt2(args.size, args.device, dtype)
        if not compiled:
            return OwnRun(model, model.step)
        return OwnRun(model, torch.compile(model.stay().step, mode="reduce-overhead", fullgraph=True))

    yield "torch.compile", "off", lambda: own(True)
    yield "torch SDPA", "off", lambda: own(False)
    if transformers:
        for attention, maps in (("eager", "off"), ("sdpa", "off"), ("eager", "all")):
            name = "HF output_attentions" if maps == "all" else "HF " + attention
            yield name, maps, lambda a=attention, m=maps: HfRun(hf_model(args.size, a, args.device, dtype), m == "all")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="gpt2", choices=SIZES)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--dtypes", default="f16,f32")
    parser.add_argument("--prompts", default="512,1024", help="lengths; tokens follow the first")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing new after these")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        skip(f"PyTorch {torch.__version__} sees no GPU")
    began = time.perf_counter()
    versions = f"torch {torch.__version__}" + (f", transformers {transformers.__version__}" if transformers else "")
    device = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    prompts = [int(p) for p in args.prompts.split(",")]
    print(f"{versions}, {device}", file=sys.stderr)
    with torch.inference_mode():
        if transformers:
            check_own(args)
        for dtype in args.dtypes.split(","):
            for name, maps, make in ways(args, {"f16": torch.float16, "f32": torch.float32}[dtype]):
                if time.perf_counter() - began > args.seconds:
                    print(f"left out for lack of time: {name} {dtype}", file=sys.stderr)
                    continue
                try:
                    dynamo_counters.clear()
                    run = make()
                    for prompt in prompts:
                        tokens = args.tokens if prompt == prompts[0] else 0
                        prefill, decode = measure(run, args, prompt, tokens)
                        line = {"by": name, "versions": versions, "model": args.size, "device": device,
                                "dtype": dtype, "maps": maps, "prefill_tokens": prompt,
                                "prefill_ms": spread(prefill), "decode_tokens": tokens, "decode_ms": spread(decode)}
                        if name == "torch.compile":  # 0 if the graphs were really used
                            line["graph_skips"] = dynamo_counters["inductor"]["cudagraph_skips"]
                        print(json.dumps(line), flush=True)
                except Exception as e:  # no compiler for Triton, no memory: the others still count
                    print(f"{name} {dtype} failed: {type(e).__name__}: {str(e).splitlines()[:1]}", file=sys.stderr)


main()
