#!/usr/bin/env python3
"""Writes tiny random Switch Transformers and NLLB-MoE checkpoints with a reference.json computed in
float64 by the forward passes below, which need Python alone. They switch on what the fixtures leave
out, and route NLLB-MoE's tokens as its publishers do: transformers 5 does not. Run by hand:

    python3 tools/encoder_reference.py tests/data/models/variants
"""
import json
import math
import pathlib
import random
import struct
import sys

SWITCH = dict(architectures=["SwitchTransformersForConditionalGeneration"],
              model_type="switch_transformers", is_encoder_decoder=True, vocab_size=96, d_model=32,
              d_kv=8, d_ff=24, num_heads=4, num_layers=3, num_decoder_layers=3, num_experts=4,
              encoder_sparse_step=2, decoder_sparse_step=2, expert_capacity=64,
              dense_act_fn="relu", router_bias=False, layer_norm_epsilon=1e-6,
              relative_attention_num_buckets=32, relative_attention_max_distance=128,
              tie_word_embeddings=True, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
NLLB = dict(architectures=["NllbMoeForConditionalGeneration"], model_type="nllb-moe",
            is_encoder_decoder=True, vocab_size=96, d_model=32, encoder_layers=3, decoder_layers=3,
            encoder_ffn_dim=24, decoder_ffn_dim=24, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_sparse_step=2, decoder_sparse_step=2, num_experts=5,
            activation_function="relu", router_bias=False, scale_embedding=True,
            moe_token_dropout=0.0, moe_eval_capacity_token_fraction=1.0,
            second_expert_policy="all", max_position_embeddings=64, tie_word_embeddings=True,
            decoder_start_token_id=2, pad_token_id=1, bos_token_id=0, eos_token_id=2)
MODELS = {
    "switch_untied_gelu_bias": dict(
        SWITCH, tie_word_embeddings=False, dense_act_fn="gelu_new", router_bias=True, num_heads=3,
        decoder_sparse_step=1, relative_attention_num_buckets=8,
        relative_attention_max_distance=11, decoder_start_token_id=3),
    "switch_uneven_dense": dict(SWITCH, num_layers=2, num_decoder_layers=4, encoder_sparse_step=0,
                                decoder_sparse_step=3, d_kv=5),
    "nllb_routed": dict(NLLB),
    "nllb_dropout_uneven": dict(
        NLLB, moe_token_dropout=0.25, scale_embedding=False, router_bias=True,
        tie_word_embeddings=False, encoder_layers=2, decoder_layers=4, encoder_sparse_step=1,
        decoder_sparse_step=3, encoder_attention_heads=2, decoder_attention_heads=8,
        encoder_ffn_dim=40, activation_function="gelu", pad_token_id=4, decoder_start_token_id=7),
}


class Shapes(dict):
    """Shapes of a checkpoint's tensors by their names."""

    def linear(self, name, rows, columns, bias=False):
        self[name + ".weight"] = (rows, columns)
        if bias:
            self[name + ".bias"] = (rows,)

    def norm(self, name, width, bias=False):
        self[name + ".weight"] = (width,)
        if bias:
            self[name + ".bias"] = (width,)


def switch_shapes(config):
    shapes, hidden = Shapes(), config["d_model"]
    inner, wide = config["d_kv"] * config["num_heads"], config["d_ff"]
    shapes["shared.weight"] = (config["vocab_size"], hidden)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for half, count in (("encoder", "num_layers"), ("decoder", "num_decoder_layers")):
        shapes.norm(f"{half}.final_layer_norm", hidden)
        shapes[f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = (
            config["relative_attention_num_buckets"], config["num_heads"])
        for i in range(config[count]):
            parts = ["SelfAttention"] + (["EncDecAttention"] if half == "decoder" else [])
            for number, part in enumerate(parts):
                name = f"{half}.block.{i}.layer.{number}"
                shapes.norm(name + ".layer_norm", hidden)
                for matrix in "qkv":
                    shapes.linear(f"{name}.{part}.{matrix}", inner, hidden)
                shapes.linear(f"{name}.{part}.o", hidden, inner)
            name = f"{half}.block.{i}.layer.{len(parts)}"
            shapes.norm(name + ".layer_norm", hidden)
            experts = [name + ".mlp"]
            step = config[half + "_sparse_step"]
            if step == 1 or (step > 1 and i % step == 1):
                shapes.linear(name + ".mlp.router.classifier", config["num_experts"], hidden,
                              config["router_bias"])
                experts = [f"{name}.mlp.experts.expert_{e}" for e in range(config["num_experts"])]
            for expert in experts:
                shapes.linear(expert + ".wi", wide, hidden)
                shapes.linear(expert + ".wo", hidden, wide)
    return shapes


def nllb_shapes(config):
    shapes, hidden = Shapes(), config["d_model"]
    shapes["model.shared.weight"] = (config["vocab_size"], hidden)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for half in ("encoder", "decoder"):
        shapes.norm(f"model.{half}.layer_norm", hidden, True)
        for i in range(config[half + "_layers"]):
            name = f"model.{half}.layers.{i}"
            parts = ["self_attn"] + (["cross_attention"] if half == "decoder" else [])
            for part in parts:
                shapes.norm(f"{name}.{part}_layer_norm", hidden, True)
                for matrix in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    shapes.linear(f"{name}.{part}.{matrix}", hidden, hidden, True)
            shapes.norm(name + ".ff_layer_norm", hidden, True)
            experts = [name + ".ffn"]
            step = config[half + "_sparse_step"]
            if step > 0 and (i + 1) % step == 0:
                shapes.linear(name + ".ffn.router.classifier", config["num_experts"], hidden,
                              config["router_bias"])
                experts = [f"{name}.ffn.experts.expert_{e}" for e in range(config["num_experts"])]
            for expert in experts:
                shapes.linear(expert + ".fc1", config[half + "_ffn_dim"], hidden, True)
                shapes.linear(expert + ".fc2", hidden, config[half + "_ffn_dim"], True)
    return shapes


def random_weights(shapes, seed):
    """Numbers that bfloat16 has, row after row."""
    source, weights = random.Random(seed), {}
    for name, shape in shapes.items():
        middle = 1.0 if len(shape) == 1 and name.endswith("weight") else 0.0
        deviation = 0.5 if "router" in name else 0.25
        values = [source.gauss(middle, deviation) for _ in range(math.prod(shape))]
        weights[name] = [bf16(value) for value in values]
    return weights


def bf16(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


def write_safetensors(path, shapes, weights):
    header, data = {}, b""
    for name, values in weights.items():
        stored = b"".join(struct.pack("<f", value)[2:] for value in values)
        header[name] = dict(dtype="BF16", shape=list(shapes[name]),
                            data_offsets=[len(data), len(data) + len(stored)])
        data += stored
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def add(a, b):
    return [[x + y for x, y in zip(row, other)] for row, other in zip(a, b)]


def softmax(scores):
    shares = [math.exp(score - max(scores)) for score in scores]
    return [share / sum(shares) for share in shares]


class Model:
    """The parts that both families have: matrices, attention, experts."""

    def __init__(self, config, shapes, weights):
        self.config, self.shapes, self.weights = config, shapes, {}
        for name, values in weights.items():
            width = shapes[name][-1]
            rows = [values[i:i + width] for i in range(0, len(values), width)]
            self.weights[name] = rows if len(shapes[name]) == 2 else values

    def linear(self, rows, name):
        matrix = self.weights[name + ".weight"]
        bias = self.weights.get(name + ".bias", [0.0] * len(matrix))
        return [[dot(row, one) + b for one, b in zip(matrix, bias)] for row in rows]

    def activate(self, x):
        kind = self.config.get("dense_act_fn", self.config.get("activation_function"))
        if kind == "relu":
            return max(x, 0.0)
        if kind == "gelu":
            return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

    def expert(self, rows, first, second):
        inner = self.linear(rows, first)
        return self.linear([[self.activate(x) for x in row] for row in inner], second)

    def attention(self, rows, seen, names, heads, scale, score_of):
        """`score_of(head, query, key)` is added to scores; None: the key is not seen."""
        queries, keys, values = (self.linear(of, name)
                                 for of, name in zip((rows, seen, seen), names))
        size, out = len(queries[0]) // heads, []
        for i, query in enumerate(queries):
            out.append([])
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                visible = [j for j in range(len(keys)) if score_of(head, i, j) is not None]
                shares = softmax([dot(query[part], keys[j][part]) * scale + score_of(head, i, j)
                                  for j in visible])
                for d in range(part.start, part.stop):
                    out[-1].append(dot(shares, [values[j][d] for j in visible]))
        return self.linear(out, names[3])

    def greedy(self, tokens, steps):
        encoded = self.encode(tokens)
        decoded, margins = [self.config["decoder_start_token_id"]], []
        first = self.logits(encoded, decoded)
        logits = first
        for _ in range(steps):
            order = sorted(range(len(logits)), key=lambda token: -logits[token])
            margins.append(round(logits[order[0]] - logits[order[1]], 5))
            decoded.append(order[0])
            logits = self.logits(encoded, decoded)
        return dict(input_ids=tokens, last_logits=[round(x, 6) for x in first],
                    greedy=decoded[1:], margins=margins)


class Switch(Model):
    def norm(self, rows, name):
        weight = self.weights[name + ".weight"]
        sizes = [math.sqrt(dot(row, row) / len(row) + self.config["layer_norm_epsilon"])
                 for row in rows]
        return [[x / size * w for x, w in zip(row, weight)] for row, size in zip(rows, sizes)]

    def bucket(self, distance, both_ways):
        buckets = self.config["relative_attention_num_buckets"]
        first = 0
        if both_ways:
            buckets //= 2
            first = buckets if distance > 0 else 0
            distance = abs(distance)
        else:
            distance = max(-distance, 0)
        exact = buckets // 2
        if distance < exact:
            return first + distance
        farthest = self.config["relative_attention_max_distance"]
        share = math.log(distance / exact) / math.log(farthest / exact)
        return first + min(exact + int(share * (buckets - exact)), buckets - 1)

    def attend(self, rows, seen, name, biased, causal):
        table = biased and self.weights[biased]

        def score_of(head, query, key):
            if causal and key > query:
                return None
            return table[self.bucket(key - query, not causal)][head] if table else 0.0
        return self.attention(rows, seen, [f"{name}.{matrix}" for matrix in "qkvo"],
                              self.config["num_heads"], 1.0, score_of)

    def feed_forward(self, rows, name):
        if name + ".router.classifier.weight" not in self.weights:
            return self.expert(rows, name + ".wi", name + ".wo")
        out = []
        for row, logits in zip(rows, self.linear(rows, name + ".router.classifier")):
            shares = softmax(logits)
            best = max(range(len(shares)), key=lambda e: shares[e])
            one = f"{name}.experts.expert_{best}"
            out.append([x * shares[best] for x in self.expert([row], one + ".wi", one + ".wo")[0]])
        return out

    def half(self, rows, half, encoded):
        biased = f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        count = self.config["num_layers" if half == "encoder" else "num_decoder_layers"]
        for i in range(count):
            name = f"{half}.block.{i}.layer"
            normed = self.norm(rows, name + ".0.layer_norm")
            rows = add(rows, self.attend(normed, normed, name + ".0.SelfAttention", biased,
                                         half == "decoder"))
            if encoded:
                normed = self.norm(rows, name + ".1.layer_norm")
                rows = add(rows, self.attend(normed, encoded, name + ".1.EncDecAttention", None,
                                             False))
            last = f"{name}.{2 if encoded else 1}"
            rows = add(rows, self.feed_forward(self.norm(rows, last + ".layer_norm"),
                                               last + ".mlp"))
        return self.norm(rows, half + ".final_layer_norm")

    def embed(self, tokens):
        return [self.weights["shared.weight"][token] for token in tokens]

    def encode(self, tokens):
        return self.half(self.embed(tokens), "encoder", None)

    def logits(self, encoded, decoded):
        last = self.half(self.embed(decoded), "decoder", encoded)[-1]
        if not self.config["tie_word_embeddings"]:
            return self.linear([last], "lm_head")[0]
        return [x * len(last) ** -0.5 for x in self.linear([last], "shared")[0]]


class Nllb(Model):
    def norm(self, rows, name):
        out = []
        for row in rows:
            mean = sum(row) / len(row)
            size = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-5)
            out.append([(x - mean) / size * w + b for x, w, b in zip(
                row, self.weights[name + ".weight"], self.weights[name + ".bias"])])
        return out

    def attend(self, rows, seen, name, half, causal):
        heads = self.config[half + "_attention_heads"]
        names = [f"{name}.{matrix}_proj" for matrix in ("q", "k", "v", "out")]
        return self.attention(rows, seen, names, heads, (len(rows[0]) // heads) ** -0.5,
                              lambda head, i, j: None if causal and j > i else 0.0)

    def feed_forward(self, rows, name):
        if name + ".router.classifier.weight" not in self.weights:
            return self.expert(rows, name + ".fc1", name + ".fc2")
        out = []
        for row, logits in zip(rows, self.linear(rows, name + ".router.classifier")):
            shares = softmax(logits)
            best = sorted(range(len(shares)), key=lambda e: -shares[e])[:2]
            total = shares[best[0]] + shares[best[1]]
            sums = [0.0] * len(row)
            for chosen in best:
                one = f"{name}.experts.expert_{chosen}"
                factor = shares[chosen] / total * (1 - self.config["moe_token_dropout"])
                result = self.expert([row], one + ".fc1", one + ".fc2")[0]
                sums = [x + factor * y for x, y in zip(sums, result)]
            out.append(sums)
        return out

    def embed(self, tokens):
        hidden = self.config["d_model"]
        half, scale = hidden // 2, math.sqrt(hidden) if self.config["scale_embedding"] else 1.0
        rows = []
        for i, token in enumerate(tokens):
            angles = [(i + self.config["pad_token_id"] + 1) * 1e4 ** (-k / (half - 1))
                      for k in range(half)]
            sinusoids = [math.sin(x) for x in angles] + [math.cos(x) for x in angles]
            rows.append([x * scale + y for x, y in zip(
                self.weights["model.shared.weight"][token], sinusoids)])
        return rows

    def half(self, tokens, half, encoded):
        rows = self.embed(tokens)
        for i in range(self.config[half + "_layers"]):
            name = f"model.{half}.layers.{i}"
            normed = self.norm(rows, name + ".self_attn_layer_norm")
            rows = add(rows, self.attend(normed, normed, name + ".self_attn", half,
                                         half == "decoder"))
            if encoded:
                normed = self.norm(rows, name + ".cross_attention_layer_norm")
                rows = add(rows, self.attend(normed, encoded, name + ".cross_attention", half,
                                             False))
            rows = add(rows, self.feed_forward(self.norm(rows, name + ".ff_layer_norm"),
                                               name + ".ffn"))
        return self.norm(rows, f"model.{half}.layer_norm")

    def encode(self, tokens):
        return self.half(tokens, "encoder", None)

    def logits(self, encoded, decoded):
        last = self.half(decoded, "decoder", encoded)[-1:]
        tied = self.config["tie_word_embeddings"]
        return self.linear(last, "model.shared" if tied else "lm_head")[0]


def main():
    target = pathlib.Path(sys.argv[1])
    for number, (name, config) in enumerate(MODELS.items()):
        is_switch = config["model_type"] == "switch_transformers"
        shapes = (switch_shapes if is_switch else nllb_shapes)(config)
        folder = target / name
        folder.mkdir(parents=True, exist_ok=True)
        weights = random_weights(shapes, number)
        write_safetensors(folder / "model.safetensors", shapes, weights)
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        model = (Switch if is_switch else Nllb)(config, shapes, weights)
        source = random.Random(100 + number)
        prompts = [model.greedy([source.randrange(96) for _ in range(length)], 12)
                   for length in (1, 9, 26)]
        (folder / "reference.json").write_text(
            json.dumps({"architecture": config["architectures"][0], "prompts": prompts}) + "\n")


if __name__ == "__main__":
    main()
