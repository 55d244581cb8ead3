"""Models of GGUF files at the command line: `gguf_test.py KLOTSKI SOURCE_FOLDER`. The files are made here of the
bundled model, with a writer of its own."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

from program import HANGS, KLOTSKI, SOURCE, TINY

TEXT, ARRAY, U16, U32, F32, BOOL, I32 = 8, 9, 2, 4, 6, 7, 5
PACK = {U16: "<H", U32: "<I", F32: "<f", BOOL: "<?", I32: "<i"}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.layers": "blk",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "block_sparse_moe.gate": "ffn_gate_inp",
         "block_sparse_moe.experts": "experts"}
EXPERT_NAMES = {"w1": "ffn_gate", "w2": "ffn_down", "w3": "ffn_up"}
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    if isinstance(value, list):
        items = b"".join(text(v) if kind == TEXT else struct.pack(PACK[kind], v) for v in value)
        return text(key) + struct.pack("<IIQ", ARRAY, kind, len(value)) + items
    return text(key) + struct.pack("<I", kind) + (text(value) if kind == TEXT else struct.pack(PACK[kind], value))


def write(path, pairs, tensors):
    """Tensors are (name, shape outermost first, bytes of BF16 numbers)."""
    table, data = b"", b""
    for name, shape, content in tensors:
        table += text(name) + struct.pack("<I", len(shape))
        table += b"".join(struct.pack("<Q", size) for size in reversed(shape))
        table += struct.pack("<IQ", 30, len(data))
        data += content + bytes(-len(content) % 32)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + table
    path.write_bytes(header + bytes(-len(header) % 32) + data)


def stored_tensors():
    for path in sorted(TINY.glob("*.safetensors")):
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                yield name, entry["shape"], data[8 + size + begin:8 + size + end]


def paired_rows(shape, content, heads):
    row, head = len(content) // shape[0], shape[0] // heads
    order = [h * head + i // 2 + i % 2 * (head // 2) for h in range(heads) for i in range(head)]
    return b"".join(content[r * row:(r + 1) * row] for r in order)


def converted(config):
    tensors, experts = [], {}
    for name, shape, content in stored_tensors():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if "attn_q." in name:
            content = paired_rows(shape, content, config["num_attention_heads"])
        if "attn_k." in name:
            content = paired_rows(shape, content, config["num_key_value_heads"])
        expert = re.fullmatch(r"(blk\.\d+)\.experts\.(\d+)\.(w\d)\.weight", name)
        if expert:
            name = f"{expert[1]}.{EXPERT_NAMES[expert[3]]}_exps.weight"
            experts.setdefault(name, (shape, {}))[1][int(expert[2])] = content
        else:
            tensors.append((name, shape, content))
    for name, (shape, parts) in experts.items():
        tensors.append((name, [len(parts), *shape], b"".join(parts[i] for i in range(len(parts)))))
    return tensors


# The folder's plain texts begin with <s>, as the folder does not say otherwise; a file has to say it.
def begins():
    return pair("tokenizer.ggml.add_bos_token", BOOL, True)


def metadata(config):
    tokenizer = json.loads((TINY / "tokenizer.json").read_text())
    added = {token["id"] for token in tokenizer["added_tokens"]}
    tokens = {number: token for token, number in tokenizer["model"]["vocab"].items()}
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    numbers = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
               "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
               "expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok",
               "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads"}
    return [pair("general.architecture", TEXT, "llama"),
            *(pair("llama." + key, U32, config[field]) for key, field in numbers.items()),
            pair("llama.attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]),
            pair("llama.rope.freq_base", F32, config["rope_parameters"]["rope_theta"]),
            pair("tokenizer.ggml.model", TEXT, "gpt2"), pair("tokenizer.ggml.pre", TEXT, "gpt-2"),
            pair("tokenizer.ggml.tokens", TEXT, [tokens[i] for i in range(len(tokens))]),
            pair("tokenizer.ggml.token_type", I32, [3 if i in added else 1 for i in range(len(tokens))]),
            pair("tokenizer.ggml.merges", TEXT, merges),
            pair("tokenizer.ggml.bos_token_id", U32, config["bos_token_id"]),
            pair("tokenizer.ggml.eos_token_id", U32, config["eos_token_id"]),
            pair("tokenizer.chat_template", TEXT, TEMPLATE)]


class Gguf(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        config = json.loads((TINY / "config.json").read_text())
        cls.pairs, cls.tensors = [*metadata(config), begins()], converted(config)
        cls.model = cls.folder / "tiny.gguf"
        write(cls.model, cls.pairs, cls.tensors)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def program(self, *arguments, code=0, given=None):
        done = subprocess.run([KLOTSKI, *map(str, arguments)], capture_output=True, text=True, timeout=HANGS,
                              input=given)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_a_file_runs_as_the_folder_does(self):
        prompt = ("-p", "The quick brown fox", "-n", "16", "--temperature", "0")
        self.assertEqual(self.program("run", self.model, *prompt), self.program("run", TINY, *prompt))
        self.assertEqual(self.program("run", self.model, *prompt, "--chat"),
                         self.program("run", self.model, *prompt, "--chat", "--ram", "200MiB", "--expert-slots", "4"))

    def test_verify_and_info(self):
        self.program("verify", self.model, "--reference", TINY / "reference.json")
        info = json.loads(self.program("info", self.model, "--json"))
        folder = json.loads(self.program("info", TINY, "--json"))
        for key in ("architecture", "layers", "experts", "parameters", "tokenizer_tokens", "vocabulary"):
            self.assertEqual(info[key], folder[key])
        self.assertTrue(info["chat_template"])
        self.assertEqual(info["types"], {"BF16": {"bytes": info["bytes"]["total"], "tensors": len(self.tensors)}})

    def test_files_of_another_converter(self):
        """Every family that has a file, against its safetensors' reference."""
        models = SOURCE / "tests/data/models"
        files = sorted((SOURCE / "tests/data/gguf/models").glob("*.gguf"))
        self.assertGreaterEqual(len(files), 10)
        for file in files:
            references = (file.with_suffix(".reference.json"), models / "variants" / file.stem / "reference.json",
                          models / file.stem / "reference.json")
            reference = next(filter(pathlib.Path.exists, references))
            with self.subTest(file.stem):
                self.program("verify", file, "--reference", reference, "--device", "cpu", "--precision", "f32")

    def test_a_file_without_a_vocabulary_is_measured_with_another(self):
        bare = self.folder / "bare.gguf"
        write(bare, [pair for pair in self.pairs if b"tokenizer.ggml" not in pair[:24]], self.tensors)
        flags = ("--sequences", "1", "--generate", "2", "--json")
        self.assertIn("tokenizer", self.program("bench", bare, *flags, code=3))
        done = json.loads(self.program("bench", bare, *flags, "--tokenizer", TINY))
        self.assertTrue(done["settings"])
        self.program("bench", bare, *flags, "--tokenizer", self.folder / "none", code=3)

    def test_tokenizers_are_equal(self):
        given = json.dumps({"text": "def f(x):\n    return x  # 1234 <s> \u00e9"}) + "\n"
        plain = self.folder / "plain.gguf"
        write(plain, [entry for entry in self.pairs if entry != begins()], self.tensors)
        self.assertEqual(self.program("tokenize", plain, given=given), self.program("tokenize", TINY, given=given))
        marked = json.loads(self.program("tokenize", self.model, given=given))
        self.assertEqual(marked["ids_with_special"], [1, *marked["ids"]])

    def test_shards(self):
        for number in range(3):
            place = [pair("split.no", U16, number), pair("split.count", U16, 3),
                     pair("split.tensors.count", I32, len(self.tensors))]
            write(self.folder / f"s-{number + 1:05}-of-00003.gguf", (self.pairs if number == 0 else []) + place,
                  self.tensors[number::3])
        prompt = ("-p", "A", "-n", "4", "--temperature", "0")
        first = self.folder / "s-00001-of-00003.gguf"
        self.assertEqual(self.program("run", first, *prompt), self.program("run", TINY, *prompt))
        self.assertIn("s-00001-of-00003.gguf", self.program("info", self.folder / "s-00002-of-00003.gguf", code=3))
        (self.folder / "s-00003-of-00003.gguf").unlink()
        self.assertIn("s-00003-of-00003.gguf", self.program("info", first, code=3))

    def test_what_is_refused(self):
        cut = self.folder / "cut.gguf"
        cut.write_bytes(self.model.read_bytes()[:-100_000])
        self.assertIn("cut short", self.program("run", cut, "-p", "A", code=3))
        self.assertIn("safetensors", self.program("compact", self.model, self.folder / "out", code=3))
        self.assertIn("safetensors", self.program("quantize", self.model, self.folder / "out", "--bits", "4", code=3))
        other = self.folder / "other.gguf"
        write(other, [pair("general.architecture", TEXT, "bert")], self.tensors)
        self.assertIn("llama, olmoe, phimoe, qwen2moe, qwen3moe", self.program("info", other, code=3))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
