"""Asks lm-evaluation-harness's hf backend and a server of the same model for the same, and prints both answers.

    python3 lm-eval.py MODEL_DIR MODEL_NAME ADDRESS
"""
import json
import logging
import sys

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

logging.disable(logging.WARNING)
folder, name, address = sys.argv[1:]
texts = [
    ("ROMEO:\nWhat light through yonder", " window breaks?"),
    ("To be, or not to be:", " that is the question."),
    ("", "First Citizen:\nBefore we proceed any further, hear me speak."),
    ("A", " b"),
]
rolling = [
    "Good morrow, cousin.\nIs the day so young?",
    "Now is the winter of our discontent made glorious summer by this sun of York. " * 12,  # more than one window
]
prompts = [
    ("ROMEO:\n", {"until": ["\n\n"], "max_gen_toks": 40}),
    ("JULIET:\nO Romeo,", {"until": [".", "!"], "max_gen_toks": 30, "do_sample": False}),
]


def requests(kind, arguments):
    return [Instance(kind, {}, each, i) for i, each in enumerate(arguments)]


def ask(lm):
    return {
        "loglikelihood": lm.loglikelihood(requests("loglikelihood", texts), disable_tqdm=True),
        "rolling": lm.loglikelihood_rolling(requests("loglikelihood_rolling", [(t,) for t in rolling]), disable_tqdm=True),
        "generate_until": lm.generate_until(requests("generate_until", prompts), disable_tqdm=True),
    }


# of a server's windows the harness keeps two tokens free: 255 are left of these 257, which fit into a context of 256
hf = get_model("hf")(pretrained=folder, device="cpu", dtype="float32", batch_size=1, max_length=255)
said = {"hf": ask(hf)}
for backend in "huggingface", "remote":
    loupe = get_model("local-completions")(
        model=name,
        base_url=address + "/v1/completions",
        tokenizer=folder,
        tokenizer_backend=backend,
        tokenized_requests=True,
        max_length=257,
        num_concurrent=1,
    )
    said[backend] = ask(loupe)
print(json.dumps(said))
