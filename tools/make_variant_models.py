#!/usr/bin/env python3
"""Writes tests/data/models/variants: tiny random checkpoints that switch on what the plain fixtures do
not (rope scaling, windows, chunks, dense layers, biases, clamping, MXFP4), each with a reference.json computed in
float64 by Hugging Face transformers. Run by hand when a variant is added:

    pip install torch transformers && python3 tools/make_variant_models.py tests/data/models/variants [NAME ...]
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers as hf

BASE = dict(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
MIXTRAL = dict(BASE, head_dim=16, num_local_experts=4, num_experts_per_tok=2)
QWEN = dict(BASE, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
GPT_OSS = dict(MIXTRAL, num_local_experts=6, sliding_window=4)
LLAMA4 = dict(BASE, head_dim=16, num_local_experts=4, num_experts_per_tok=2,
              intermediate_size_mlp=48, attention_chunk_size=5, floor_scale=3, attn_scale=0.4)
QWEN2 = dict(QWEN, shared_expert_intermediate_size=28)
NEXT = dict(QWEN2, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
            linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4)
GLM = dict(BASE, head_dim=16, moe_intermediate_size=24, n_routed_experts=6,
           num_experts_per_tok=2, num_mtp_layers=0)
ERNIE = dict(BASE, moe_intermediate_size=24, moe_num_experts=6, moe_k=2)
DBRX = dict(vocab_size=96, d_model=32, n_heads=4, n_layers=3, max_seq_len=64,
            bos_token_id=1, eos_token_id=2, pad_token_id=0)
DBRX_HEADS = dict(kv_n_heads=2, rope_theta=10000.0)
DBRX_EXPERTS = dict(ffn_hidden_size=24, moe_num_experts=4, moe_top_k=2)
ROPE = {
    "linear": dict(factor=4.0),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, original_max_position_embeddings=16),
    "llama3": dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32),
    "longrope": dict(short_factor=[1.0 + 0.1 * i for i in range(8)],
                     long_factor=[2.0 + 0.5 * i for i in range(8)],
                     original_max_position_embeddings=32),
}
LATENT = dict(BASE, num_key_value_heads=4, moe_intermediate_size=24, kv_lora_rank=24,
              qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, first_k_dense_replace=1)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
UNEVEN = dict(num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=21, qk_nope_head_dim=9,
              qk_rope_head_dim=6, v_head_dim=13)
VARIANTS = {
    **{f"mixtral_{kind}": (hf.MixtralForCausalLM, hf.MixtralConfig(
        **MIXTRAL, rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **parameters)))
       for kind, parameters in ROPE.items()},
    "mixtral_tied_gelu": (hf.MixtralForCausalLM, hf.MixtralConfig(
        **dict(MIXTRAL, tie_word_embeddings=True, head_dim=24, hidden_act="gelu"))),
    "qwen2_windows_dense": (hf.Qwen2MoeForCausalLM, hf.Qwen2MoeConfig(
        **QWEN2, use_sliding_window=True, sliding_window=5, max_window_layers=3,
        norm_topk_prob=True, mlp_only_layers=[1])),
    "qwen2_no_bias_sparse_step": (hf.Qwen2MoeForCausalLM, hf.Qwen2MoeConfig(
        **QWEN2, qkv_bias=False, decoder_sparse_step=2)),
    "qwen3_dense_bias": (hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(
        **QWEN, head_dim=16, mlp_only_layers=[0], norm_topk_prob=False, attention_bias=True)),
    "qwen3_window": (hf.Qwen3MoeForCausalLM, hf.Qwen3MoeConfig(
        **QWEN, head_dim=16, use_sliding_window=True, sliding_window=7, norm_topk_prob=True)),
    "olmoe_clip_bias": (hf.OlmoeForCausalLM, hf.OlmoeConfig(
        **BASE, num_experts=6, num_experts_per_tok=2, clip_qkv=0.5, attention_bias=True,
        norm_topk_prob=True)),
    "gpt_oss_no_bias": (hf.GptOssForCausalLM, hf.GptOssConfig(
        **GPT_OSS, attention_bias=False, swiglu_alpha=0.9, swiglu_limit=0.4,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=5000.0))),
    "gpt_oss_mxfp4": (hf.GptOssForCausalLM, hf.GptOssConfig(**dict(GPT_OSS, intermediate_size=64))),
    "llama4_chunks_dense": (hf.Llama4ForCausalLM, hf.Llama4TextConfig(
        **LLAMA4, no_rope_layer_interval=2, interleave_moe_layer_step=2, attention_bias=True)),
    "llama4_no_norm": (hf.Llama4ForCausalLM, hf.Llama4TextConfig(
        **LLAMA4, use_qk_norm=False, no_rope_layers=[0, 1, 0], moe_layers=[0, 2], hidden_act="gelu",
        layer_types=["chunked_attention", "full_attention", "full_attention"],
        rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, **ROPE["llama3"]))),
    # Queries of a low rank, biases, groups by their best expert, sharper scores, no dense layer.
    "deepseek_v2_yarn_groups": (hf.DeepseekV2ForCausalLM, hf.DeepseekV2Config(**dict(
        LATENT, q_lora_rank=20, attention_bias=True, n_routed_experts=6, num_experts_per_tok=2,
        topk_method="group_limited_greedy", n_group=3, topk_group=2, routed_scaling_factor=1.7,
        n_shared_experts=1, first_k_dense_replace=0,
        rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.9)))),
    # Widths without a common divisor, and inner norms whose epsilon is not the config's.
    "deepseek_v2_uneven": (hf.DeepseekV2ForCausalLM, hf.DeepseekV2Config(**dict(
        LATENT, **UNEVEN, q_lora_rank=None, n_routed_experts=5, num_experts_per_tok=3,
        n_shared_experts=2, first_k_dense_replace=2, rms_norm_eps=1e-2, hidden_act="gelu",
        norm_topk_prob=True, rope_parameters=dict(
            rope_type="linear", rope_theta=10000.0, factor=2.0, mscale_all_dim=1.0)))),
    # One projection of queries, halves that rotate, tied embeddings, weights as they are.
    "deepseek_v3_yarn_bias": (hf.DeepseekV3ForCausalLM, hf.DeepseekV3Config(**dict(
        LATENT, q_lora_rank=None, attention_bias=True, rope_interleave=False, n_routed_experts=6,
        num_experts_per_tok=3, n_group=1, topk_group=1, norm_topk_prob=False,
        routed_scaling_factor=1.3, n_shared_experts=2, tie_word_embeddings=True,
        rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0)))),
    "deepseek_v3_uneven": (hf.DeepseekV3ForCausalLM, hf.DeepseekV3Config(**dict(
        LATENT, **UNEVEN, q_lora_rank=17, n_routed_experts=8, num_experts_per_tok=2, n_group=4,
        topk_group=3, n_shared_experts=1, first_k_dense_replace=0, rms_norm_eps=1e-2,
        hidden_act="relu"))),
    "glm4_bias_dense": (hf.Glm4MoeForCausalLM, hf.Glm4MoeConfig(
        **GLM, attention_bias=True, first_k_dense_replace=1, routed_scaling_factor=1.5)),
    "glm4_head_norm_groups": (hf.Glm4MoeForCausalLM, hf.Glm4MoeConfig(
        **dict(GLM, n_routed_experts=8, n_shared_experts=2), use_qk_norm=True, n_group=4,
        topk_group=2, norm_topk_prob=False, first_k_dense_replace=0,
        rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=10000.0,
                             partial_rotary_factor=0.25))),
    "ernie_tied": (hf.Ernie4_5_MoeForCausalLM, hf.Ernie4_5_MoeConfig(
        **dict(ERNIE, tie_word_embeddings=True), moe_num_shared_experts=0)),
    "ernie_interval_least_sum": (hf.Ernie4_5_MoeForCausalLM, hf.Ernie4_5_MoeConfig(
        **ERNIE, moe_num_shared_experts=2, moe_layer_start_index=0, moe_layer_end_index=1,
        moe_layer_interval=2, moe_norm_min=0.9)),
    "minimax_partial": (hf.MiniMaxM2ForCausalLM, hf.MiniMaxM2Config(
        **MIXTRAL, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                        partial_rotary_factor=0.5))),
    "hunyuan_bias_layers": (hf.HunYuanMoEV1ForCausalLM, hf.HunYuanMoEV1Config(
        **BASE, head_dim=16, num_experts=6, moe_topk=[1, 2, 3], attention_bias=True)),
    "hunyuan_alpha": (hf.HunYuanMoEV1ForCausalLM, hf.HunYuanMoEV1Config(
        **dict(BASE, tie_word_embeddings=True), head_dim=16, num_experts=4, moe_topk=2,
        rope_parameters=dict(rope_type="dynamic", alpha=50.0, factor=1.0, rope_theta=10000.0))),
    "granite_factors_bias": (hf.GraniteMoeForCausalLM, hf.GraniteMoeConfig(
        **dict(BASE, tie_word_embeddings=True), num_local_experts=6, num_experts_per_tok=3,
        attention_bias=True, embedding_multiplier=3.0, residual_multiplier=0.4,
        attention_multiplier=0.2, logits_scaling=2.5)),
    "phimoe_biases_window": (hf.PhimoeForCausalLM, hf.PhimoeConfig(
        **BASE, num_local_experts=6, attention_bias=True, lm_head_bias=True, sliding_window=5,
        router_jitter_noise=0.2)),
    "phimoe_longrope": (hf.PhimoeForCausalLM, hf.PhimoeConfig(
        **BASE, num_local_experts=4, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=32,
            short_mscale=1.25, long_mscale=1.25, short_factor=[1.0, 1.5, 2.0, 3.0],
            long_factor=[2.0, 3.0, 4.0, 5.0]))),
    "dbrx_clip": (hf.DbrxForCausalLM, hf.DbrxConfig(
        **DBRX, attn_config=dict(DBRX_HEADS, clip_qkv=0.5),
        ffn_config=dict(DBRX_EXPERTS, moe_normalize_expert_weights=1.0))),
    "dbrx_gelu": (hf.DbrxForCausalLM, hf.DbrxConfig(
        **DBRX, attn_config=dict(DBRX_HEADS, clip_qkv=8.0),
        ffn_config=dict(DBRX_EXPERTS, moe_normalize_expert_weights=None,
                        ffn_act_fn=dict(name="gelu")))),
    # The layers of the published model: three of a gated delta net, then one of attention.
    "qwen3_next": (hf.Qwen3NextForCausalLM, hf.Qwen3NextConfig(
        **dict(NEXT, num_hidden_layers=4, full_attention_interval=4))),
    "qwen3_next_bias_dense": (hf.Qwen3NextForCausalLM, hf.Qwen3NextConfig(
        **NEXT, attention_bias=True, mlp_only_layers=[0], norm_topk_prob=False, rms_norm_eps=1e-2,
        layer_types=["full_attention", "linear_attention", "full_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=1.0))),
    # Widths without a common divisor, one key head for each value head, a long convolution.
    "qwen3_next_uneven": (hf.Qwen3NextForCausalLM, hf.Qwen3NextConfig(
        **dict(NEXT, linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=7,
               linear_value_head_dim=5, linear_conv_kernel_dim=6, tie_word_embeddings=True,
               decoder_sparse_step=2, full_attention_interval=2, hidden_act="gelu"),
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                             partial_rotary_factor=0.5, original_max_position_embeddings=16))),
    # No keys and values at all, and a convolution that sees the token alone.
    "qwen3_next_states_alone": (hf.Qwen3NextForCausalLM, hf.Qwen3NextConfig(
        **dict(NEXT, linear_num_value_heads=6, linear_conv_kernel_dim=1, hidden_act="relu"),
        layer_types=["linear_attention"] * 3)),
}
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def randomise(model):
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.2)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.2)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.2)


def random_mxfp4(matrices, rows, columns):
    """Blocks and scales as gpt-oss has them, and the numbers that they stand for."""
    codes = torch.randint(0, 16, (matrices, rows, columns // 32, 32), dtype=torch.uint8)
    exponents = torch.randint(120, 125, (matrices, rows, columns // 32), dtype=torch.uint8)
    signs = 1.0 - 2.0 * (codes // 8)
    numbers = signs * FP4[(codes % 8).long()] * torch.exp2(exponents.float() - 127)[..., None]
    blocks = codes[..., 0::2] + 16 * codes[..., 1::2]
    return blocks, exponents, numbers.reshape(matrices, rows, columns).to(torch.bfloat16)


def quantise_experts(folder, model):
    """Gives the model experts of random MXFP4 numbers; returns the tensors of the folder then."""
    packed = {}
    for name, parameter in model.named_parameters():
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, columns, rows = parameter.shape
        packed[f"{name}_blocks"], packed[f"{name}_scales"], numbers = random_mxfp4(
            experts, rows, columns)
        parameter.data = numbers.transpose(1, 2).contiguous()
    model.save_pretrained(folder)
    kept = safetensors.torch.load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in kept.items()
            if not name.endswith(("gate_up_proj", "down_proj"))}
    return {**kept, **packed}


def write_quantised(folder, tensors):
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def next_logits(model, cache, before, token):
    """Logits after one more token; a model without keys and values has no cache and reads all tokens again."""
    if cache is None:
        return model(torch.cat([before, token], dim=1), use_cache=False).logits[0, -1]
    return model(token, past_key_values=cache, use_cache=True).logits[0, -1]


def reference(model, length, steps):
    ids = torch.randint(0, BASE["vocab_size"], (1, length))
    types = set(getattr(model.config, "layer_types", None) or [])
    cache = None if types == {"linear_attention"} else hf.DynamicCache(config=model.config)
    with torch.no_grad():
        logits = model(ids, past_key_values=cache, use_cache=cache is not None).logits[0]
        greedy, margins, last, seen = [], [], logits[-1], ids
        for _ in range(steps):
            best = torch.topk(last, 2)
            token = best.indices[:1][None]
            greedy.append(int(token))
            margins.append(round(float(best.values[0] - best.values[1]), 5))
            last = next_logits(model, cache, seen, token)
            seen = torch.cat([seen, token], dim=1)
    return dict(input_ids=ids[0].tolist(), last_logits=[round(float(x), 6) for x in logits[-1]],
                argmax_all=logits.argmax(-1).tolist(), greedy=greedy, margins=margins)


def main():
    target = pathlib.Path(sys.argv[1])
    for number, (name, (cls, config)) in enumerate(VARIANTS.items()):
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(number)
        model = cls(config).to(torch.bfloat16)
        randomise(model)
        model.save_pretrained(target / name)
        quantised = quantise_experts(target / name, model) if name.endswith("mxfp4") else None
        # Loaded again so that the rope frequencies are not rounded to bfloat16.
        model = cls.from_pretrained(target / name, dtype=torch.float64).eval()
        if cls not in (hf.Llama4ForCausalLM, hf.DbrxForCausalLM):  # which have no other
            model.set_experts_implementation("eager")
        lengths = [(1, 12), (9, 12), (26, 12)]  # the last crosses longrope's switch while decoding
        if name == "mixtral_dynamic":
            lengths += [(60, 12), (80, 4)]  # beyond the trained context, ever longer
        (target / name / "generation_config.json").unlink(missing_ok=True)
        text = json.dumps({"architecture": cls.__name__, "transformers": hf.__version__,
                           "prompts": [reference(model, *length) for length in lengths]})
        (target / name / "reference.json").write_text(text + "\n")
        if quantised:
            write_quantised(target / name, quantised)


if __name__ == "__main__":
    main()
