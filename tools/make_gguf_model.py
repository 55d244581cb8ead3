#!/usr/bin/env python3
"""Writes a model folder (safetensors, one of the families that the program knows) as a GGUF file, with the
names, types and tokenizer metadata that llama.cpp's converter gives it. For tests by hand:

    pip install gguf && python3 tools/make_gguf_model.py FOLDER OUT.gguf [F32|F16|BF16|Q8_0|Q4_0|...]

The type is that of matrices whose rows are whole blocks; others, and the vectors, are F32.
"""
import json
import pathlib
import sys

import gguf
import numpy as np

ARCHITECTURES = {"mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "olmoe": "olmoe"}
NUMBERS = {"num_hidden_layers": "block_count", "max_position_embeddings": "context_length",
           "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
           "moe_intermediate_size": "expert_feed_forward_length",
           "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
           "num_local_experts": "expert_count", "num_experts": "expert_count",
           "num_experts_per_tok": "expert_used_count", "num_attention_heads": "attention.head_count",
           "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length"}


def tensors_of(folder):
    """Name and float32 numbers of every tensor of the folder's safetensors files."""
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            raw = data[begin:end]
            if entry["dtype"] == "BF16":
                numbers = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                numbers = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[entry["dtype"]]).astype(np.float32)
            yield name, numbers.reshape(entry["shape"])


def paired_rows(matrix, heads):
    """Rows i and i + half of each head become neighbours."""
    return matrix.reshape(heads, 2, -1, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)


def converted(folder, config, arch):
    """Tensors under the names of GGUF, experts of a layer as one."""
    names = gguf.get_tensor_name_map(next(a for a in gguf.MODEL_ARCH if gguf.MODEL_ARCH_NAMES[a] == arch),
                                     config["num_hidden_layers"])
    result, experts = {}, {}
    for name, matrix in tensors_of(folder):
        if arch == "llama" and "q_proj" in name:
            matrix = paired_rows(matrix, config["num_attention_heads"])
        if arch == "llama" and "k_proj" in name:
            matrix = paired_rows(matrix, config["num_key_value_heads"])
        if ".experts." in name:
            front, rest = name.split(".experts.")
            number, which = rest.split(".", 1)
            experts.setdefault(f"{front}.experts.{which}", {})[int(number)] = matrix
        else:
            result[names.get_name(name, (".weight", ".bias")) or name] = matrix
    for name, parts in experts.items():
        result[names.get_name(name, (".weight",))] = np.stack([parts[i] for i in range(len(parts))])
    return result


def add_tokenizer(writer, folder):
    """The byte-level BPE of a tokenizer.json, of the pattern that GPT-2 has."""
    if not (folder / "tokenizer.json").exists():
        return
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    vocabulary = {id: text for text, id in tokenizer["model"]["vocab"].items()}
    vocabulary.update({id: token["content"] for id, token in added.items()})
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([vocabulary[i] for i in range(len(vocabulary))])
    writer.add_token_types([3 if i in added and added[i]["special"] else 4 if i in added else 1
                            for i in range(len(vocabulary))])
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])


def main():
    folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    kind = gguf.GGMLQuantizationType[sys.argv[3] if len(sys.argv) > 3 else "BF16"]
    config = json.loads((folder / "config.json").read_text())
    arch = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(out, arch)
    for field, key in NUMBERS.items():
        if config.get(field) is not None:
            writer.add_uint32(f"{arch}.{key}", config[field])
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", config["rms_norm_eps"])
    writer.add_float32(f"{arch}.rope.freq_base", config["rope_parameters"]["rope_theta"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    add_tokenizer(writer, folder)
    columns = gguf.GGML_QUANT_SIZES[kind][0]
    for name, matrix in converted(folder, config, arch).items():
        plain = matrix.ndim == 1 or "ffn_gate_inp" in name or matrix.shape[-1] % columns != 0
        type_of = gguf.GGMLQuantizationType.F32 if plain else kind
        writer.add_tensor(name, gguf.quants.quantize(matrix, type_of), raw_dtype=type_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
