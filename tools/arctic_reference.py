#!/usr/bin/env python3
"""Writes tiny random Snowflake Arctic checkpoints with a reference.json computed in float64 by the
forward pass below, which needs NumPy alone: Hugging Face transformers has no Arctic. Run by hand:

    pip install numpy && python3 tools/arctic_reference.py tests/data/models/variants
"""
import json
import pathlib
import struct
import sys

import numpy as np

BASE = dict(architectures=["ArcticForCausalLM"], model_type="arctic", vocab_size=96, hidden_size=32,
            intermediate_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            num_local_experts=6, num_experts_per_tok=2, hidden_act="silu", rms_norm_eps=1e-5,
            rope_theta=10000.0, max_position_embeddings=64, tie_word_embeddings=False,
            bos_token_id=1, eos_token_id=2)
MODELS = {
    "arctic": dict(BASE, moe_layer_frequency=1, parallel_attn_mlp_res=True, use_residual=True),
    "arctic_dense_layers": dict(BASE, num_experts_per_tok=1, moe_layer_frequency=2,
                                parallel_attn_mlp_res=True, use_residual=True, sliding_window=6),
    "arctic_no_residual": dict(BASE, moe_layer_frequency=1, parallel_attn_mlp_res=False),
}


def is_routed(config, layer):
    return (layer + 1) % config["moe_layer_frequency"] == 0


def tensor_shapes(config):
    hidden, width = config["hidden_size"], config["intermediate_size"]
    head = hidden // config["num_attention_heads"]
    kept = config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden),
              "model.norm.weight": (hidden,), "lm_head.weight": (config["vocab_size"], hidden)}

    def add_part(name, inner):
        shapes.update({f"{name}.w1.weight": (inner, hidden), f"{name}.w3.weight": (inner, hidden),
                       f"{name}.w2.weight": (hidden, inner)})

    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        shapes.update({f"{layer}.input_layernorm.weight": (hidden,),
                       f"{layer}.post_attention_layernorm.weight": (hidden,),
                       f"{layer}.self_attn.q_proj.weight": (hidden, hidden),
                       f"{layer}.self_attn.k_proj.weight": (kept, hidden),
                       f"{layer}.self_attn.v_proj.weight": (kept, hidden),
                       f"{layer}.self_attn.o_proj.weight": (hidden, hidden)})
        if not is_routed(config, i):
            add_part(f"{layer}.block_sparse_moe.mlp", width)
            continue
        shapes[f"{layer}.block_sparse_moe.gate.weight"] = (config["num_local_experts"], hidden)
        for expert in range(config["num_local_experts"]):
            add_part(f"{layer}.block_sparse_moe.experts.{expert}", width)
        if config["parallel_attn_mlp_res"]:
            shapes[f"{layer}.residual_layernorm.weight"] = (hidden,)
            add_part(f"{layer}.residual_mlp", hidden)
    return shapes


def random_weights(config, seed):
    """Numbers that bfloat16 has, as float32."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in tensor_shapes(config).items():
        values = random.normal(1.0 if len(shape) == 1 else 0.0, 0.2, shape).astype(np.float32)
        weights[name] = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return weights


def write_safetensors(path, weights):
    header, data = {}, b""
    for name, values in weights.items():
        stored = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = dict(dtype="BF16", shape=list(values.shape),
                            data_offsets=[len(data), len(data) + len(stored)])
        data += stored
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Arctic:
    """The forward pass over whole sequences, in float64, without a cache."""

    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: values.astype(np.float64) for name, values in weights.items()}

    def norm(self, rows, name):
        mean = np.mean(rows * rows, axis=-1, keepdims=True)
        return rows / np.sqrt(mean + self.config["rms_norm_eps"]) * self.weights[name + ".weight"]

    def linear(self, rows, name):
        return rows @ self.weights[name + ".weight"].T

    def gated(self, rows, name):
        gate = self.linear(rows, name + ".w1")
        return self.linear(gate / (1 + np.exp(-gate)) * self.linear(rows, name + ".w3"),
                           name + ".w2")

    def rotate(self, heads):
        half = heads.shape[-1] // 2
        frequencies = self.config["rope_theta"] ** (-np.arange(half) / half)
        angles = np.arange(heads.shape[0])[:, None, None] * frequencies
        first, second = heads[..., :half], heads[..., half:]
        return np.concatenate((first * np.cos(angles) - second * np.sin(angles),
                               second * np.cos(angles) + first * np.sin(angles)), axis=-1)

    def attention(self, rows, name):
        count, hidden = rows.shape
        heads, kept = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        size = hidden // heads
        queries = self.rotate(self.linear(rows, name + ".q_proj").reshape(count, heads, size))
        keys = self.rotate(self.linear(rows, name + ".k_proj").reshape(count, kept, size))
        values = self.linear(rows, name + ".v_proj").reshape(count, kept, size)
        distance = np.arange(count)[:, None] - np.arange(count)
        window = self.config.get("sliding_window") or count
        seen = (distance >= 0) & (distance < window)
        out = np.empty_like(queries)
        for head in range(heads):
            own = head // (heads // kept)
            scores = np.where(seen, queries[:, head] @ keys[:, own].T / np.sqrt(size), -np.inf)
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = shares / shares.sum(axis=-1, keepdims=True) @ values[:, own]
        return self.linear(out.reshape(count, hidden), name + ".o_proj")

    def experts(self, rows, name):
        logits = self.linear(rows, name + ".gate")
        scores = np.exp(logits - logits.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        choices = self.config["num_experts_per_tok"]
        out = np.zeros_like(rows)
        for i, row in enumerate(rows):
            chosen = np.argsort(-scores[i], kind="stable")[:choices]
            weights = scores[i][chosen]
            if choices > 1:
                weights = weights / weights.sum()
            for expert, weight in zip(chosen, weights):
                out[i] += weight * self.gated(row[None], f"{name}.experts.{expert}")[0]
        return out

    def layer(self, rows, i):
        name = f"model.layers.{i}"
        moe = name + ".block_sparse_moe"
        attended = rows + self.attention(self.norm(rows, name + ".input_layernorm"),
                                         name + ".self_attn")
        if not is_routed(self.config, i):
            return attended + self.gated(self.norm(attended, name + ".post_attention_layernorm"),
                                         moe + ".mlp")
        if not self.config["parallel_attn_mlp_res"]:
            return attended + self.experts(
                self.norm(attended, name + ".post_attention_layernorm"), moe)
        dense = self.gated(self.norm(attended, name + ".residual_layernorm"),
                           name + ".residual_mlp")
        return attended + dense + self.experts(
            self.norm(rows, name + ".post_attention_layernorm"), moe)

    def logits(self, tokens):
        rows = self.weights["model.embed_tokens.weight"][tokens]
        for i in range(self.config["num_hidden_layers"]):
            rows = self.layer(rows, i)
        return self.linear(self.norm(rows, "model.norm"), "lm_head")


def reference(model, tokens, steps):
    prompt = model.logits(tokens)
    greedy, margins = [], []
    for _ in range(steps):
        last = model.logits(tokens + greedy)[-1]
        second, best = np.sort(last)[-2:]
        greedy.append(int(last.argmax()))
        margins.append(round(float(best - second), 5))
    return dict(input_ids=tokens, last_logits=[round(float(x), 6) for x in prompt[-1]],
                argmax_all=[int(x) for x in prompt.argmax(-1)], greedy=greedy, margins=margins)


def main():
    target = pathlib.Path(sys.argv[1])
    for number, (name, config) in enumerate(MODELS.items()):
        folder = target / name
        folder.mkdir(parents=True, exist_ok=True)
        weights = random_weights(config, number)
        write_safetensors(folder / "model.safetensors", weights)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        model = Arctic(config, weights)
        random = np.random.default_rng(100 + number)
        prompts = [reference(model, [int(x) for x in random.integers(0, 96, length)], 12)
                   for length in (1, 9, 26)]
        (folder / "reference.json").write_text(
            json.dumps({"architecture": "ArcticForCausalLM", "prompts": prompts}) + "\n")


if __name__ == "__main__":
    main()
