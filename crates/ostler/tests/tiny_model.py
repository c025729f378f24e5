"""Creates a Llama model with half a million random weights and a byte-level tokenizer, and LoRA adapters for it.

usage: tiny_model.py DIRECTORY [ADAPTER_DIRECTORY...]

Requires torch, transformers, tokenizers and safetensors, which vLLM depends on.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

directory, *adapter_directories = sys.argv[1:]
SPECIAL_TOKENS = ["<pad>", "<s>", "</s>"]
ADAPTER_RANK = 8

alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
byte_level_model = models.BPE(vocab={token: index for index, token in enumerate(SPECIAL_TOKENS + alphabet)}, merges=[])
tokenizer = Tokenizer(byte_level_model)
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
pretrained_tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
pretrained_tokenizer.chat_template = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=320,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=2048,
    initializer_range=0.2,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
model = LlamaForCausalLM(config).to(torch.bfloat16)
model.save_pretrained(directory)
pretrained_tokenizer.save_pretrained(directory)

for adapter_directory in map(pathlib.Path, adapter_directories):
    weights = {}
    for name, module in model.named_modules():
        if not name.endswith(".q_proj"):
            continue
        shapes = {"lora_A": (ADAPTER_RANK, module.in_features), "lora_B": (module.out_features, ADAPTER_RANK)}
        for matrix, shape in shapes.items():
            weights[f"base_model.model.{name}.{matrix}.weight"] = (torch.randn(shape) * 0.2).to(torch.bfloat16)
    adapter_directory.mkdir(parents=True)
    save_file(weights, adapter_directory / "adapter_model.safetensors")
    adapter_config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": ADAPTER_RANK,
        "lora_alpha": 2 * ADAPTER_RANK,
        "target_modules": ["q_proj"],
    }
    (adapter_directory / "adapter_config.json").write_text(json.dumps(adapter_config))
